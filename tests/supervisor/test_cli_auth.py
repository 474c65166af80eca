"""`covey auth`, from the command line to the file and to a provider, with and without a fleet."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from json_server import JsonHandler, JsonServer

from covey.__main__ import main
from covey.protocol.destination import fingerprint
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.messages.credentials import Rest
from covey.storage.credentials import OAuthCredential, PlainCredential
from covey.supervisor.credential_file import CredentialFile
from covey.supervisor.home import Home
from covey.supervisor.rest_file import RestFile

SECRETS = ("sk-good", "sk-bad", "sk-env", "sk-command", "refresh-good", "access-good", "client-secret-word")


class Provider(JsonServer):
    """Lists its models for good keys, and gives a good token for a good refresh token."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.status: int | None = None
        self.seen: list[tuple[str, dict[str, str]]] = []


class Handler(JsonHandler):
    server: Provider

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, headers))
        secret = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        is_good = secret in ("sk-good", "sk-env", "sk-command", "access-good")
        status = self.server.status or (200 if is_good else 401)
        said = {"data": [{"id": "m"}]} if status == 200 else {"error": {"message": f"the key {secret} is not valid"}}
        self.say(status, said)

    def do_POST(self) -> None:
        is_good = "refresh_token=refresh-good" in self.form()
        self.say(
            200 if is_good else 400,
            {"access_token": "access-good", "expires_in": 3600} if is_good else {"error": "invalid_grant"},
        )


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: Provider) -> Provider:
    shared_provider.status = None
    shared_provider.seen.clear()
    return shared_provider


class Desk:
    """One home, and what is typed at it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = Home(path)
        self.file = CredentialFile(self.home)
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.out = self.err = ""

    def config(self, text: str) -> None:
        self.home.create()
        self.home.config.write_text(text)

    def auth(self, *words: str, stdin: str = "") -> int:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(["auth", *words])
        self.out, self.err = self._capsys.readouterr()
        # Whatever was asked, and however it ended.
        assert not [secret for secret in SECRETS if secret in self.out + self.err]
        return code

    def json(self, *words: str, code: int = 0, stdin: str = "") -> Any:
        assert self.auth(*words, "--json", stdin=stdin) == code
        return json.loads(self.out)


@pytest.fixture
def desk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, provider: Provider
) -> Desk:
    home = tmp_path / "home"
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("ZAI_API_KEY", "SIM_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COVEY_HOME", str(home))
    desk = Desk(home, capsys, monkeypatch)
    desk.config(f"providers:\n  sim:\n    base_url: {provider.url}/v1\n    api_key_env: SIM_KEY\n")
    return desk


class TestAdd:
    def test_a_key_from_stdin_is_kept_and_named_by_its_fingerprint(self, desk: Desk) -> None:
        said = desk.json("add", "sim", stdin="sk-good\n")

        (kept,) = desk.file.read().of("sim")
        assert isinstance(kept, PlainCredential)
        assert (kept.key, kept.label) == ("sk-good", "key1")
        assert said == {
            "provider": "sim",
            "label": "key1",
            "fingerprint": fingerprint("sk-good"),
            "kind": "key",
            "replaced": False,
            "unchanged": False,
        }
        assert stat.S_IMODE(desk.file.path.stat().st_mode) == 0o600

    def test_a_home_that_is_made_for_it_is_closed_to_others(self, desk: Desk, tmp_path: Path) -> None:
        new = tmp_path / "new"
        assert desk.auth("add", "zai", "--home", str(new), stdin="sk-good") == 0

        assert stat.S_IMODE(new.stat().st_mode) == 0o700

    def test_a_second_key_is_another_one_of_the_pool(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "sim", stdin="sk-bad")
        desk.auth("add", "sim", "--label", "work", stdin="sk-third")

        assert [one.label for one in desk.file.read().of("sim")] == ["key1", "key2", "work"]

    def test_the_same_key_again_is_no_second_one(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")

        assert desk.json("add", "sim", stdin="sk-good")["replaced"] is True
        assert len(desk.file.read().of("sim")) == 1

    def test_a_label_that_is_taken_is_replaced_in_its_place(self, desk: Desk) -> None:
        for label in ("a", "b"):
            desk.auth("add", "sim", "--label", label, stdin=f"sk-{label}")

        assert desk.json("add", "sim", "--label", "a", stdin="sk-good")["replaced"] is True
        assert [(one.label, one.account) for one in desk.file.read().of("sim")] == [
            ("a", fingerprint("sk-good")),
            ("b", fingerprint("sk-b")),
        ]

    def test_a_dead_key_that_is_added_again_is_tried_again(self, desk: Desk) -> None:
        desk.home.prepare()
        name = fingerprint("sk-good") or ""
        rests = RestFile(desk.home)
        rests.save({"sim": {name: Rest(kind=FaultKind.AUTH, reason="no", since_ms=0)}})

        desk.auth("add", "sim", stdin="sk-good")

        assert rests.load() == {"sim": {}}

    @pytest.mark.parametrize(
        ("words", "stdin", "says"),
        [
            pytest.param(["nobody"], "sk-good", "there is no provider 'nobody'; there are: zai, sim", id="provider"),
            pytest.param(["sim"], "", "there is no key on stdin", id="nothing"),
            pytest.param(["sim"], "sk-good and-more", "characters that none has", id="two words"),
            pytest.param(["sim"], "sk-good\nsk-bad", "characters that none has", id="two lines"),
            pytest.param(["sim"], "sk-good\u2026", "characters that none has", id="typographic"),
            pytest.param(["sim"], "x" * 100_000, "more than", id="a whole file"),
            pytest.param(["sim", "--label", "a b"], "sk-good", "a label is", id="label"),
            pytest.param(["sim", "--client-id", "x"], "sk-good", "add --oauth", id="a login without --oauth"),
            pytest.param(["sim", "--oauth"], "refresh-good", "--token-url and --client-id", id="no token URL"),
            pytest.param(
                ["sim", "--oauth", "--client-id", "c", "--token-url", "http://login.example.org/t"],
                "refresh-good",
                "has to be https",
                id="readable",
            ),
            pytest.param(
                ["sim", "--oauth", "--client-id", "c", "--token-url", "https://login.example.org/t"],
                '{"access_token": "access-good"}',
                "no refresh_token",
                id="JSON without a refresh token",
            ),
            pytest.param(
                ["sim", "--oauth", "--client-id", "c", "--token-url", "https://login.example.org/t"],
                '{"refresh-good',
                "begins like JSON",
                id="half a JSON",
            ),
            pytest.param(["sim", "sk-good"], "", "never an argument", id="a key as an argument"),
            pytest.param(["sim", "--key=sk-good"], "", "never an argument", id="a key as an option"),
            pytest.param(["sk-good" * 5], "", "there is no provider of that name", id="a key as the provider"),
            pytest.param(
                ["sim", "--oauth", "--client-id", "c\udcff", "--token-url", "https://login.example.org/t"],
                "refresh-good",
                "printable text",
                id="a client id that nothing can be written with",
            ),
        ],
    )
    def test_what_cannot_be_meant_adds_nothing(self, desk: Desk, words: list[str], stdin: str, says: str) -> None:
        assert desk.auth("add", *words, stdin=stdin) == 2

        assert says in desk.err
        assert not desk.file.path.exists()

    @pytest.mark.parametrize(
        "stdin",
        [
            pytest.param("refresh-good\n", id="the token alone"),
            pytest.param('{"refresh_token": "refresh-good"}', id="JSON"),
            pytest.param('{"claudeAiOauth": {"refreshToken": "refresh-good"}}', id="JSON of another tool"),
        ],
    )
    def test_a_login_is_kept_with_where_it_is_renewed(self, desk: Desk, stdin: str) -> None:
        said = desk.json(
            "add", "sim", "--oauth", "--token-url", "https://login.example.org/t", "--client-id", "c", "--scope", "x y",
            stdin=stdin,
        )  # fmt: skip

        (kept,) = desk.file.read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert (kept.refresh_token, kept.access_token, kept.scope) == ("refresh-good", None, "x y")
        assert (said["kind"], said["label"], said["fingerprint"]) == ("oauth", "login1", fingerprint("refresh-good"))

    def test_a_login_that_was_renewed_since_is_not_replaced_by_the_token_it_began_with(self, desk: Desk) -> None:
        words = ("add", "sim", "--oauth", "--token-url", "https://login.example.org/t", "--client-id", "c")
        desk.auth(*words, stdin="refresh-good")
        (first,) = desk.file.read().of("sim")
        renewed = msgspec.structs.replace(first, refresh_token="refresh-newer", access_token="access-newer")
        desk.file.change(lambda kept: kept.with_credential("sim", renewed))

        again = desk.json(*words, stdin="refresh-good")
        unchanged = desk.file.read().of("sim")
        desk.file.change(lambda kept: kept.with_credential("sim", msgspec.structs.replace(renewed, refused="spent")))
        mended = desk.json(*words, stdin="refresh-good")

        assert (again["unchanged"], unchanged) == (True, (renewed,))
        assert mended["replaced"] is True
        assert [one.refresh_token for one in desk.file.read().of("sim") if isinstance(one, OAuthCredential)] == [
            "refresh-good"
        ]

    def test_a_key_under_another_label_is_there_once(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "sim", "--label", "work", stdin="sk-good")

        assert [one.label for one in desk.file.read().of("sim")] == ["work"]

    def test_an_end_in_another_age_is_no_end(self, desk: Desk) -> None:
        words = ("add", "sim", "--oauth", "--token-url", "https://login.example.org/t", "--client-id", "c")
        login = {"refresh_token": "refresh-good", "access_token": "access-good", "expires_in": 1e300}

        assert desk.auth(*words, stdin=json.dumps(login)) == 0
        (kept,) = desk.file.read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert (kept.access_token, kept.expires_ms) == (None, None)

    def test_a_stdin_that_is_closed_is_said(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)

        assert main(["auth", "add", "sim"]) == 2
        assert not desk.file.path.exists()

    def test_what_another_tool_knows_is_taken_over(self, desk: Desk) -> None:
        of_a_tool = {
            "tokens": {
                "refresh_token": "refresh-good",
                "access_token": "access-good",
                "expires_at": "2100-01-01T00:00:00Z",
                "client_id": "theirs",
                "client_secret": "client-secret-word",
            }
        }
        words = ("add", "sim", "--oauth", "--token-url", "https://login.example.org/t")
        assert desk.auth(*words, stdin=json.dumps(of_a_tool)) == 0

        (kept,) = desk.file.read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert (kept.access_token, kept.expires_ms, kept.client_id, kept.client_secret) == (
            "access-good",
            4_102_444_800_000,
            "theirs",
            "client-secret-word",
        )


class TestAFileThatCannotBeUsed:
    @pytest.mark.parametrize("words", [["add", "sim"], ["remove", "sim"], ["list"], ["test", "sim"]], ids=" ".join)
    def test_nothing_is_changed_and_the_remedy_is_said(self, desk: Desk, words: list[str]) -> None:
        desk.file.path.write_text('{"version": 1, "providers": {"sim": [{"ki')
        desk.file.path.chmod(0o600)

        assert desk.auth(*words, stdin="sk-good") == 1

        assert desk.file.path.read_text() == '{"version": 1, "providers": {"sim": [{"ki'
        assert f"{desk.file.path} is damaged" in desk.err
        assert "mend it, or move it away" in desk.err

    def test_one_that_others_could_read_is_closed_and_that_is_said(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.file.path.chmod(0o644)

        assert desk.auth("list") == 0
        assert "could be read by others (mode 0644); now 0600" in desk.err


class TestList:
    def test_every_source_is_shown_with_its_state(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SIM_KEY", "sk-env")
        desk.config(desk.home.config.read_text() + "    api_key_command: printf sk-command\n")
        desk.home.prepare()
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "sim", stdin="sk-bad")
        now_ms = time.time_ns() // 1_000_000
        RestFile(desk.home).save(
            {
                "sim": {
                    fingerprint("sk-bad") or "": Rest(kind=FaultKind.AUTH, reason="wrong", since_ms=now_ms),
                    fingerprint("sk-env") or "": Rest(
                        kind=FaultKind.QUOTA, reason="used up", since_ms=now_ms, until_ms=now_ms + 3_600_000
                    ),
                }
            }
        )

        said = desk.json("list")
        desk.auth("list")

        assert (said["fleet"], said["problem"]) == (False, None)
        assert [(one["label"], one["source"], one["kind"], one["state"]) for one in said["credentials"]] == [
            ("key1", "store", "key", "ok"),
            ("key2", "store", "key", "dead"),
            ("SIM_KEY", "environment", "key", "rests"),
            ("command", "command", "command", "ok"),
        ]
        assert said["without"] == [{"provider": "zai", "problem": "ZAI_API_KEY is not set"}]
        assert said["credentials"][2]["until_ms"] == now_ms + 3_600_000
        for word in ("rests until", "dead", "wrong", "zai: ZAI_API_KEY is not set", fingerprint("sk-good") or ""):
            assert word in desk.out

    def test_one_provider_can_be_asked_for(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "zai", stdin="sk-bad")

        assert [one["provider"] for one in desk.json("list", "zai")["credentials"]] == ["zai"]
        assert desk.auth("list", "nobody") == 2
        assert "there are: zai, sim" in desk.err


class TestRemove:
    def test_the_only_one_needs_no_name_and_what_is_used_then_is_said(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SIM_KEY", "sk-env")
        desk.auth("add", "sim", stdin="sk-good")

        assert desk.auth("remove", "sim") == 0

        assert desk.file.read().providers == {}
        assert desk.out.endswith("removed; from now on the key in SIM_KEY is used\n")

    @pytest.mark.parametrize("name", ["key2", fingerprint("sk-bad")])
    def test_of_several_one_is_named(self, desk: Desk, name: str) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "sim", stdin="sk-bad")

        without = desk.auth("remove", "sim")
        told = desk.err
        named = desk.auth("remove", "sim", name)

        assert (without, named) == (2, 0)
        assert "key1 (" in told
        assert [one.label for one in desk.file.read().of("sim")] == ["key1"]

    def test_what_is_not_there_is_said(self, desk: Desk) -> None:
        assert desk.auth("remove", "nobody") == 2
        assert "there are: zai, sim" in desk.err
        assert desk.auth("remove", "sim") == 2
        assert "nothing is kept for sim" in desk.err
        desk.auth("add", "sim", stdin="sk-good")
        assert desk.auth("remove", "sim", "other") == 2
        assert "it has: key1" in desk.err

    def test_a_provider_that_is_no_longer_configured_can_still_be_cleared(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.config("")

        assert desk.auth("remove", "sim") == 0
        assert desk.file.read().providers == {}


class TestTest:
    def test_a_key_that_is_taken_is_0_with_one_honest_request(self, desk: Desk, provider: Provider) -> None:
        desk.auth("add", "sim", stdin="sk-good")

        assert desk.auth("test", "sim") == 0

        ((path, headers),) = provider.seen
        assert path == "/v1/models"
        assert headers["user-agent"].startswith("covey/")
        assert "key1" in desk.out
        assert "is taken" in desk.out

    def test_a_key_that_is_refused_is_1_and_the_answer_does_not_repeat_it(self, desk: Desk) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        desk.auth("add", "sim", stdin="sk-bad")

        said = desk.json("test", "sim", code=1)
        one = desk.json("test", "sim", "key1")

        assert [(key["label"], key["state"], key["status"]) for key in said["keys"]] == [
            ("key1", "ok", 200),
            ("key2", "refused", 401),
        ]
        assert "the key [key] is not valid" in said["keys"][1]["says"]
        assert len(one["keys"]) == 1

    @pytest.mark.parametrize(
        ("status", "state"), [(404, "unclear"), (500, "unclear"), (403, "refused"), (302, "unclear")]
    )
    def test_any_other_answer_is_said(self, desk: Desk, provider: Provider, status: int, state: str) -> None:
        desk.auth("add", "sim", stdin="sk-good")
        provider.status = status

        (key,) = desk.json("test", "sim", code=1)["keys"]

        assert (key["state"], key["status"]) == (state, status)

    def test_nobody_there_is_1(self, desk: Desk) -> None:
        desk.config("providers:\n  sim:\n    base_url: http://127.0.0.1:9/v1\n")
        desk.auth("add", "sim", stdin="sk-good")

        assert desk.json("test", "sim", code=1)["keys"][0]["state"] == "unreachable"

    def test_no_key_at_all_is_usage(self, desk: Desk) -> None:
        assert desk.auth("test", "sim") == 2
        assert "set SIM_KEY, or say `covey auth add sim`" in desk.err
        assert desk.auth("test", "nobody") == 2
        desk.auth("add", "sim", stdin="sk-good")
        assert desk.auth("test", "sim", "other") == 2
        assert "it has: key1" in desk.err

    def test_the_other_sources_are_tried_too(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SIM_KEY", "sk-env")
        desk.config(desk.home.config.read_text() + "    api_key_command: printf sk-command\n")

        assert [key["label"] for key in desk.json("test", "sim")["keys"]] == ["SIM_KEY", "command"]

    def test_a_messages_endpoint_is_asked_in_its_own_way(self, desk: Desk, provider: Provider) -> None:
        desk.config(f"providers:\n  sim:\n    base_url: {provider.url}\n    dialect: anthropic\n")
        desk.auth("add", "sim", stdin="sk-good")

        assert desk.auth("test", "sim") == 0
        ((path, headers),) = provider.seen
        assert (path, headers["x-api-key"], headers["anthropic-version"]) == (
            "/v1/models?limit=1000",
            "sk-good",
            "2023-06-01",
        )

    def test_a_login_is_renewed_first_and_the_new_token_kept(self, desk: Desk, provider: Provider) -> None:
        words = ("add", "sim", "--oauth", "--token-url", f"{provider.url}/token", "--client-id", "c")
        desk.auth(*words, stdin="refresh-good")

        assert desk.auth("test", "sim") == 0

        (kept,) = desk.file.read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert kept.access_token == "access-good"

    def test_a_login_that_is_over_says_what_to_do(self, desk: Desk, provider: Provider) -> None:
        words = ("add", "sim", "--oauth", "--token-url", f"{provider.url}/token", "--client-id", "c")
        desk.auth(*words, stdin="refresh-other")

        assert desk.auth("test", "sim") == 1
        assert "invalid_grant" in desk.out
        assert "covey auth add sim --oauth --label login1" in desk.out

    def test_a_key_that_rests_and_works_rests_no_more(self, desk: Desk) -> None:
        desk.home.prepare()
        desk.auth("add", "sim", stdin="sk-good")
        name = fingerprint("sk-good") or ""
        RestFile(desk.home).save({"sim": {name: Rest(kind=FaultKind.AUTH, reason="no", since_ms=0)}})

        desk.auth("test", "sim")

        assert desk.json("list", "sim")["credentials"][0]["state"] == "ok"


class TestADamagedConfiguration:
    @pytest.mark.parametrize("words", [["up", "--detach"], ["run", "hello"], ["auth", "list"], ["auth", "test", "zai"]])
    def test_nothing_falls_back_to_the_provider_that_is_built_in(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        monkeypatch.setenv("ZAI_API_KEY", "sk-paid")
        desk.config("providers:\n  sim: [\n")

        assert main(words) in (1, 2)

        assert "config.yaml:" in capsys.readouterr().err
        assert not desk.home.root_info.exists()
        assert desk.home.config.read_text() == "providers:\n  sim: [\n"


@pytest.mark.kill
@pytest.mark.slow
def test_a_running_fleet_shows_its_own_keys_and_takes_over_new_ones(
    provider: Provider, until: Callable[[Callable[[], bool]], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="cva-", dir="/tmp") as folder:
        home = Path(folder)
        home.joinpath("config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.url}/v1\n    api_key_env: SIM_KEY\nfleet:\n  workers: 1\n"
        )
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environ = {**clean, "COVEY_HOME": folder, "SIM_KEY": "sk-env"}

        def covey(*words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-P", "-m", "covey", *words]
            return subprocess.run(
                command, env={**environ, **more}, cwd=folder, input=stdin, capture_output=True, text=True, timeout=60
            )

        def listed() -> Any:
            return json.loads(covey("auth", "list", "sim", "--json", SIM_KEY="").stdout)

        try:
            up = covey("up", "--detach")
            assert up.returncode == 0, up.stderr
            before = listed()
            added = covey("auth", "add", "sim", stdin="sk-good")
            after = listed()
            tested = covey("auth", "test", "sim", "--json", SIM_KEY="")
            home.joinpath("credentials.json").write_text("{")
            damaged = listed()
            brokers = json.loads(covey("status", "--json").stdout)["processes"]
            pid = next(one["pid"] for one in brokers if one["role"] == "broker")
            os.kill(pid, signal.SIGKILL)
            until(lambda: (listed().get("problem") or "").startswith(str(home)) and not listed()["credentials"][1:])
            logs = "".join(path.read_text(errors="replace") for path in home.joinpath("logs").iterdir())
        finally:
            covey("down")

    assert before["fleet"] is True
    assert [one["label"] for one in before["credentials"]] == ["SIM_KEY"]
    assert (added.returncode, added.stderr) == (0, "")
    assert [one["label"] for one in after["credentials"]] == ["key1", "SIM_KEY"]
    assert tested.returncode == 0, tested.stderr
    assert [one["label"] for one in json.loads(tested.stdout)["keys"]] == ["key1", "SIM_KEY"]
    assert [one["label"] for one in damaged["credentials"]] == ["key1", "SIM_KEY"]
    assert "is damaged" in damaged["problem"]
    assert not [secret for secret in SECRETS if secret in logs]
