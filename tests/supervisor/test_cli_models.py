"""`covey models` against servers in the shapes that are around, the simulated provider, and nobody."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from covey.__main__ import main
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.version import VERSION
from covey.supervisor.home import Home
from covey.supervisor.model_cache import cache_file

NOWHERE = "http://127.0.0.1:1/v1"
ROUTER = {
    "data": [
        {
            "id": "z-ai/glm-5.2",
            "context_length": 1_048_576,
            "pricing": {"prompt": "0.000001", "completion": "0.000002"},
            "top_provider": {"max_completion_tokens": 65_536},
            "supported_parameters": ["tools"],
        }
    ]
}
LLAMA = {"data": [{"id": "smollm2", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8_192}}]}
LM_STUDIO = {"data": [{"id": "qwen", "object": "model", "owned_by": "organization_owner"}]}
LM_STUDIO_OWN = {"data": [{"id": "qwen", "type": "llm", "state": "loaded", "loaded_context_length": 4_096}]}
CLAUDE = {"data": [{"type": "model", "id": "claude-opus-5", "max_input_tokens": 500_000, "max_tokens": 99_000}]}


class Stub:
    """A server with one answer for each path; what it was asked with is kept."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.status = 200
        self.asked: list[tuple[str, dict[str, str]]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                body = stub.answers.get(self.path)
                self.send_response(404 if body is None else stub.status)
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def says(self, **answers: object) -> None:
        """`v1_models=…` is the answer for `/v1/models`."""
        self.answers = {"/" + path.replace("_", "/"): json.dumps(answer).encode() for path, answer in answers.items()}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    found = Stub()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.create()
    return found


@pytest.fixture
def models(home: Home, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run `covey models --json`; every provider's part by its name."""

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        assert main(["models", "--home", str(home.path), "--json", *words]) == code
        shown = json.loads(capsys.readouterr().out)
        return {one["provider"]: one for one in shown["providers"]}

    return run


def configure(home: Home, **providers: str) -> None:
    """Each provider with its keys as YAML in braces."""
    lines = [f"  {name}: {{{keys}}}" for name, keys in providers.items()]
    home.config.write_text("\n".join(["providers:", *lines, ""]))


def test_the_table_is_shown_without_asking_anybody(models: Callable[..., dict[str, Any]]) -> None:
    zai = models()["zai"]

    glm = {one["model"]: one for one in zai["models"]}["glm-5.2"]
    assert (zai["learned_at_ms"], zai["problem"]) == (None, None)
    assert glm == {
        "model": "glm-5.2",
        "listed": None,
        "configured": False,
        "context_window_tokens": 1_000_000,
        "max_output_tokens": 131_072,
        "has_tools": True,
        "has_images": False,
        "has_reasoning": True,
        "source": "models.dev, after docs.z.ai/guides/overview/pricing",
        "as_of": "2026-07-02",
        "input_usd_per_million": None,
        "output_usd_per_million": None,
        "cache_read_usd_per_million": None,
        "cache_write_usd_per_million": None,
        "price_source": None,
    }


def test_what_a_provider_says_is_shown_and_kept(stub: Stub, home: Home, models: Callable[..., dict[str, Any]]) -> None:
    stub.says(v1_models=ROUTER)
    configure(home, router=f"base_url: {stub.root}/v1")

    (asked,) = models("--provider", "router", "--refresh")["router"]["models"]
    kept = models("--provider", "router")["router"]

    assert kept["models"] == [asked]
    assert kept["learned_at_ms"] > 1_700_000_000_000
    assert (asked["listed"], asked["context_window_tokens"], asked["max_output_tokens"]) == (True, 1_048_576, 65_536)
    assert (asked["input_usd_per_million"], asked["output_usd_per_million"]) == (1.0, 2.0)
    assert asked["source"] == asked["price_source"] == f"{stub.root}/v1/models"
    # The table knows an ability that the provider did not mention.
    assert (asked["has_tools"], asked["has_reasoning"], asked["has_images"]) == (True, False, False)


def test_a_provider_is_asked_honestly_with_its_key(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.says(v1_models=ROUTER)
    monkeypatch.setenv("ROUTER_KEY", "sk-secret")
    configure(home, router=f"base_url: {stub.root}/v1, api_key_env: ROUTER_KEY")

    models("--provider", "router", "--refresh")

    ((path, headers),) = stub.asked
    assert path == "/v1/models"
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer sk-secret", f"covey/{VERSION}")
    assert "sk-secret" not in cache_file(home, "router").read_text()


def test_a_list_that_needs_no_key_is_read_without_one(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.says(v1_models=ROUTER)
    monkeypatch.delenv("ROUTER_KEY", raising=False)
    configure(home, router=f"base_url: {stub.root}/v1, api_key_env: ROUTER_KEY")

    assert models("--provider", "router", "--refresh")["router"]["problem"] is None
    assert "authorization" not in stub.asked[0][1]


def test_anthropic_is_asked_in_its_own_words(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answers = {"/v1/models?limit=1000": json.dumps(CLAUDE).encode()}
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-secret")
    configure(home, claude=f"base_url: {stub.root}, dialect: anthropic, api_key_env: CLAUDE_KEY")

    (model,) = models("--provider", "claude", "--refresh")["claude"]["models"]

    assert (model["context_window_tokens"], model["max_output_tokens"]) == (500_000, 99_000)
    headers = stub.asked[0][1]
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-ant-secret", "2023-06-01")
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("props", "window"),
    [
        pytest.param({"default_generation_settings": {"n_ctx": 2_048}}, 2_048, id="what a slot has"),
        pytest.param({"default_generation_settings": {"n_ctx": 256}}, 8_192, id="a slot without sense: the table's"),
        pytest.param({}, 8_192, id="nothing: what the model was trained with"),
    ],
)
def test_a_server_s_slot_comes_before_what_its_model_was_trained_with(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], props: object, window: int
) -> None:
    stub.says(v1_models=LLAMA, props=props)
    configure(home, llama=f"base_url: {stub.root}/v1")

    (model,) = models("--provider", "llama", "--refresh")["llama"]["models"]

    assert model["context_window_tokens"] == window


def test_lm_studio_s_own_list_has_the_windows(stub: Stub, home: Home, models: Callable[..., dict[str, Any]]) -> None:
    stub.says(v1_models=LM_STUDIO, api_v0_models=LM_STUDIO_OWN)
    configure(home, studio=f"base_url: {stub.root}/v1")

    (model,) = models("--provider", "studio", "--refresh")["studio"]["models"]

    assert (model["model"], model["context_window_tokens"]) == ("qwen", 4_096)


def test_what_is_configured_comes_before_what_was_learned(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]]
) -> None:
    stub.says(v1_models=ROUTER)
    own = 'prices: {"z-ai/glm-5.2": {input: 7, output: 8}}'
    configure(home, router=f"base_url: {stub.root}/v1, {own}")

    (model,) = models("--provider", "router", "--refresh")["router"]["models"]

    assert (model["configured"], model["input_usd_per_million"], model["price_source"]) == (True, 7, "config.yaml")
    assert model["context_window_tokens"] == 1_048_576


def test_one_that_does_not_answer_hides_nobody_else(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.says(v1_models=ROUTER)
    monkeypatch.delenv("ZAI_API_KEY", raising=False)
    configure(home, zai=f"base_url: {NOWHERE}", router=f"base_url: {stub.root}/v1")

    found = models("--refresh")

    assert found["router"]["problem"] is None
    assert "Connect" in found["zai"]["problem"]
    assert len(found["router"]["models"]) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param((401, b"{}"), "wants a key (HTTP 401)", id="it wants a key"),
        pytest.param((404, b"{}"), "no list of models there (HTTP 404)", id="there is no list"),
        pytest.param((302, b"{}"), "no list of models there (HTTP 302)", id="elsewhere is not followed"),
        pytest.param((200, b"<html>"), "is no list of models", id="a page"),
    ],
)
def test_it_is_1_if_nobody_answered_and_what_was_known_stays(
    stub: Stub, home: Home, models: Callable[..., dict[str, Any]], answer: tuple[int, bytes], problem: str
) -> None:
    stub.says(v1_models=ROUTER)
    configure(home, router=f"base_url: {stub.root}/v1")
    models("--provider", "router", "--refresh")
    stub.status, stub.answers["/v1/models"] = answer

    found = models("--provider", "router", "--refresh", code=1)["router"]

    assert problem in found["problem"]
    assert [one["model"] for one in found["models"]] == ["z-ai/glm-5.2"]


def test_a_damaged_cache_is_ignored_with_a_warning(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    cache_file(home, "zai").parent.mkdir()
    cache_file(home, "zai").write_text("{")

    assert main(["models", "--home", str(home.path)]) == 0

    shown = capsys.readouterr()
    assert "glm-5.2" in shown.out
    assert shown.err.startswith("covey: warning: ")
    assert "zai.json: is damaged" in shown.err
    assert cache_file(home, "zai").read_text() == "{"


def test_a_provider_that_does_not_exist_is_usage(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--home", str(home.path), "--provider", "nobody"]) == 2

    assert "there is no provider nobody; valid: zai" in capsys.readouterr().err


def test_people_get_a_table_and_who_is_silent(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    configure(home, silent=f"base_url: {NOWHERE}")

    assert main(["models", "--home", str(home.path)]) == 0

    lines = capsys.readouterr().out.splitlines()
    headers = " ".join(lines[0].split())
    assert headers == "provider model window output can in / out a million source as of"
    glm = next(line for line in lines if line.split()[1] == "glm-4.6")
    assert glm.split()[:6] == ["zai", "glm-4.6", "204,800", "131,072", "tools", "reasoning"]
    assert lines[-1] == "silent: no model is known; ask it with `covey models --refresh`"


def test_the_simulated_provider_lists_its_models(home: Home, models: Callable[..., dict[str, Any]]) -> None:
    with ProviderProcess(ProviderOptions()) as provider:
        configure(home, sim=f"base_url: {provider.base_url}")
        found = models("--provider", "sim", "--refresh")["sim"]

    assert found["problem"] is None
    assert [(one["model"], one["listed"]) for one in found["models"]] == [("simulated", True)]
