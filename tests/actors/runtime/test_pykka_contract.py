"""What we rely on in pykka, private names included; runs against each new pykka. And what pykka's users keep."""

from __future__ import annotations

import ast
import asyncio
import inspect
import pathlib
from collections.abc import Callable

import pykka
import pykka.messages
import pytest

from covey.actors.runtime import _pykka
from covey.actors.runtime.actor import LoopActor
from covey.actors.runtime.errors import ActorDown, WouldDeadlock
from covey.actors.runtime.ref import ActorRef

RUNTIME = pathlib.Path(_pykka.__file__).parent


class Counter(LoopActor):
    step = 1

    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.count = start

    def add(self, n: int) -> int:
        self.count += n * self.step
        return self.count

    async def add_later(self, n: int) -> int:
        await asyncio.sleep(0)
        return self.add(n)

    def fail(self) -> None:
        raise ValueError("proxied")


# --- private names ---------------------------------------------------------------------------------------------------


def test_the_abstract_methods_are_the_three_we_answer() -> None:
    assert pykka.Actor.__abstractmethods__ == {"_create_actor_inbox", "_create_future", "_start_actor_loop"}
    assert not LoopActor.__abstractmethods__


def test_an_actor_gets_these_attributes_from_pykkas_constructor() -> None:
    class Bare(pykka.ThreadingActor):
        pass

    assert set(vars(Bare())) == {"actor_urn", "actor_inbox", "actor_stopped", "_actor_ref"}


def test_a_ref_takes_these_attributes_from_its_actor() -> None:
    class Bare(pykka.ThreadingActor):
        pass

    ref = Bare().actor_ref
    assert set(vars(ref)) == {"_actor_weakref", "actor_class", "actor_urn", "actor_inbox", "actor_stopped"}


def test_handle_receive_runs_proxy_messages() -> None:
    actor = Counter(5)

    assert actor._handle_receive(pykka.messages.ProxyCall(("add",), (2,), {})) == 7
    assert actor._handle_receive(pykka.messages.ProxyGetAttr(("count",))) == 7
    assert actor._handle_receive(pykka.messages.ProxySetAttr(("count",), 1)) is None
    assert actor.count == 1


def test_the_three_proxy_messages_are_all_there_are() -> None:
    public = {name for name, _ in inspect.getmembers(pykka.messages, inspect.isclass) if not name.startswith("_")}
    assert {"ProxyCall", "ProxyGetAttr", "ProxySetAttr"} == public - {"Any", "NamedTuple"}


def test_proxies_reach_the_actor_through_the_refs_weakref_and_its_liveness() -> None:
    source = inspect.getsource(pykka.ActorProxy.__init__)
    assert "_actor_weakref()" in source
    assert "is_alive()" in source


def test_private_names_of_pykka_are_used_in_one_module() -> None:
    def private_names(path: pathlib.Path) -> set[str]:
        tree = ast.parse(path.read_text())
        imports = {
            node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pykka._")
        }
        known = {"_actor_ref", "_actor_weakref", "_handle_receive", "_create_future", "_create_actor_inbox"}
        return imports | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in known}

    users = {path.name for path in RUNTIME.glob("*.py") if private_names(path)}
    assert users == {"_pykka.py"}


# --- pykka's shape ---------------------------------------------------------------------------------------------------


def with_counter(use: Callable[[ActorRef], object]) -> object:
    """Run `use` on a thread beside the loop the actor lives on."""

    async def main() -> object:
        ref = await Counter.start_ready(10)
        return await asyncio.to_thread(use, ref)

    return asyncio.run(main())


def test_a_loop_actor_and_its_ref_are_pykkas() -> None:
    async def main() -> None:
        ref = Counter.start()
        actor = ref._cell.actor
        assert issubclass(ActorRef, pykka.ActorRef)
        assert isinstance(actor, Counter)
        assert actor.actor_ref is ref
        assert (ref.actor_class, ref.actor_urn) == (Counter, str(ref))
        assert not ref.actor_stopped.is_set()
        ref.stop()
        await ref.stopped(deadline_s=1)
        assert ref.actor_stopped.is_set()
        with pytest.raises(pykka.ActorDeadError):
            ref.tell("gone")

    asyncio.run(main())


def test_a_proxy_calls_reads_and_sets_from_a_thread() -> None:
    def use(ref: ActorRef) -> object:
        proxy = ref.proxy()
        proxy.step = 2
        return [proxy.add(1).get(), proxy.add_later(1).get(), proxy.count.get(timeout=5)]

    assert with_counter(use) == [12, 14, 14]


def test_a_proxys_answer_can_be_awaited_on_the_loop_but_not_got() -> None:
    async def main() -> None:
        proxy = Counter.start(1).proxy()
        assert await proxy.add(1) == 2
        with pytest.raises(WouldDeadlock):
            proxy.add(1).get()
        with pytest.raises(TypeError, match="await the answer"):
            proxy.add(1).map(str)

    asyncio.run(main())


def test_a_proxied_call_that_raises_crashes_the_actor_like_any_message() -> None:
    def use(ref: ActorRef) -> object:
        proxy = ref.proxy()
        with pytest.raises(ValueError, match="proxied"):
            proxy.fail().get()
        with pytest.raises(ActorDown):
            proxy.count.get()
        return None

    with_counter(use)


def test_the_registry_of_pykka_does_not_know_loop_actors() -> None:
    async def main() -> None:
        Counter.start()
        assert pykka.ActorRegistry.get_all() == []

    asyncio.run(main())


def test_threading_actors_stay_usable_beside() -> None:
    class Threaded(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message: object) -> object:
            return message

    ref = Threaded.start()
    try:
        assert ref.ask("hi", timeout=5) == "hi"
    finally:
        ref.stop(timeout=5)


def test_a_constructor_need_not_call_its_base() -> None:
    class Careless(LoopActor):
        def __init__(self, value: int) -> None:
            self.value = value
            self.me = self.actor_ref

        def on_receive(self, message: object) -> object:
            return self.value

    async def main() -> None:
        ref = await Careless.start_ready(7)
        assert await ref.ask("value?", deadline_s=1) == 7

    asyncio.run(main())
