"""What is taken out of texts, what stays, and that it takes no longer than the text is long.

Keys are put together here, so that this file holds none of the shapes that scanners look for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from covey.protocol import redaction
from covey.protocol.redaction import LABEL, redact

HEX: Final = "0123456789abcdef" * 2
RUN: Final = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9v"
JWT: Final = f"{'ey'}JhbGciOiJIUzI1NiJ9.{'ey'}JzdWIiOiIxMjM0In0.{RUN}"
PEM: Final = "-----BEGIN {kind}PRIVATE " + "KEY-----\nMIIEpAIB\n{run}+/==\n-----END {kind}PRIVATE " + "KEY-----"

KEYS: Final = {
    "OpenAI": f"{'sk'}-{RUN}",
    "OpenAI, of a project": f"{'sk'}-proj-{RUN}_{RUN}-x",
    "Anthropic": f"{'sk'}-ant-api03-{RUN}-{RUN}",
    "OpenRouter": f"{'sk'}-or-v1-{HEX}{HEX}",
    "Z.AI": f"{HEX}.{'AbCdEfGh12345678'}",
    "Z.AI, of letters": f"{'abcdef' * 5}ab.{'abcdefghijklmnop'}",
    "Groq": f"{'gsk'}_{RUN}",
    "Google": f"{'AI'}zaSy{RUN}",
    "GitHub": f"{'gh'}p_{RUN}",
    "GitHub, fine-grained": f"{'github'}_pat_11{RUN}_{RUN}",
    "GitLab": f"{'glpat'}-{RUN}",
    "Slack": f"{'xox'}b-123456789012-{RUN}",
    "Hugging Face": f"{'hf'}_{RUN}",
    "AWS": f"{'AK'}IAIOSFODNN7EXAMPLE",
    "a JWT": JWT,
    "xAI": f"{'xai'}-{RUN}",
}
WORDS: Final = ("letmein", "hunter2", "p4ss-w0rd!", "k" * 30)


@pytest.mark.parametrize("key", [pytest.param(key, id=name) for name, key in KEYS.items()])
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "Incorrect API key provided: {}.",
        "said '{}' twice",
        '{{"message": "key {} is not valid"}}',
        "https://host.example/v1?x={}&y=1",
        "a\n{}\nb",
        "a\\n{}\\nb",
        "q=key%3D{}",
        "中{}中",
    ],
)
def test_a_key_is_known_by_its_shape_wherever_it_stands(around: str, key: str) -> None:
    assert redact(around.format(key)) == around.format(LABEL)


@pytest.mark.parametrize("value", WORDS)
@pytest.mark.parametrize(
    "around",
    [
        pytest.param("ZAI_API_KEY={}", id="environment"),
        pytest.param("export OPENAI_API_KEY={} && run", id="shell"),
        pytest.param("PGPASSWORD={} psql", id="a name without a gap"),
        pytest.param("--api-key={} --verbose", id="an option"),
        pytest.param("password={}", id="password"),
        pytest.param("api_key: '{}'", id="YAML, quoted"),
        pytest.param("api_key: {}\nmodel: x", id="YAML"),
        pytest.param("model: x\\napi_key: {}\\n", id="YAML with escaped line ends"),
        pytest.param('{{"api_key": "{}", "model": "x"}}', id="JSON"),
        pytest.param('{{"apiKey":"{}"}}', id="JSON, tight"),
        pytest.param('{{\\"password\\": \\"{}\\", \\"x\\": 1}}', id="JSON inside JSON"),
        pytest.param('{{\\\\\\"client_secret\\\\\\": \\\\\\"{}\\\\\\"}}', id="JSON inside JSON inside JSON"),
        pytest.param("{{'access_token': '{}', 'x': 1}}", id="Python"),
        pytest.param("Settings(api_key='{}', model='x')", id="Python, a call"),
        pytest.param("https://host.example/v1?api_key={}&y=1", id="a URL's query"),
        pytest.param("https://me:{}@host.example/v1", id="a URL's user"),
        pytest.param("postgres://me:{}@host.example:5432/db", id="a database's URL"),
    ],
)
def test_a_value_is_known_by_the_name_before_it(around: str, value: str) -> None:
    assert redact(around.format(value)) == around.format(LABEL)


@pytest.mark.parametrize("value", [HEX, RUN, f"{RUN}/{RUN}+{RUN}=="])
@pytest.mark.parametrize(
    "around",
    [
        "Authorization: Bearer {}",
        '"authorization": "Bearer {}"',
        "(b'authorization', b'Bearer {}')",
        "('x-api-key', '{}')",
        "x-api-key: {}",
        "got Bearer {} here",
        "GITHUB_TOKEN={}",
        "AWS_SECRET_ACCESS_KEY={}",
        "secret: {}",
    ],
)
def test_a_header_s_value_is_taken_out(around: str, value: str) -> None:
    assert redact(around.format(value)) == around.format(LABEL)


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_taken_out_whole(kind: str) -> None:
    block = PEM.format(kind=kind, run=RUN)

    assert redact(f"before {block}\nafter") == f"before {LABEL}\nafter"
    assert redact(json.dumps({"pem": block})) == json.dumps({"pem": LABEL})
    assert redact(block.partition("-----END")[0]) == LABEL


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer: gpt2-large-1234567",
        "tokenizer=AutoTokenizer12345678901234",
        "Secretary: Jane1234567890Doe",
        "max_tokens: 4096",
        '{"max_tokens": 4096, "prompt_tokens": 123456789012}',
        "commit 9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
        "key=9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "key: 550e8400-e29b-41d4-a716-446655440000",
        f"sha256:{HEX}{HEX}",
        f"{HEX}.json",
        "/home/x/.config/api_keys/key1.json",
        "key=/home/x/keys/a1b2c3d4e5f6",
        "secret: ~/secrets/a1b2c3d4e5f6",
        "key file src/keys/a1b2c3d4.py",
        "api_key=$API_KEY",
        'api_key="${ZAI_API_KEY}"',
        "password: %PASSWORD%",
        "api_key: {{ secrets.API_KEY }}",
        "api_key=<your key>",
        "api_key_env: ZAI_API_KEY",
        "api_key=ZAI_API_KEY",
        "def call(api_key: str | None) -> None",
        "client = Client(api_key=os.environ['X'], password=self.password, token=token)",
        "api_key=getenv('X')",
        "password: must be 8 characters or more",
        "password: 8 characters or more",
        "Enter the password:\n",
        "api_key: null",
        "token=None",
        '{"required": ["password", "username", "api_key", "model"]}',
        '{"password": {"type": "string"}}',
        "Bearer token required",
        "bearer of bad news",
        "basic authentication failed",
        "sk-toggleable__content-arrow-long-name",
        "sk-learn",
        "task-1234567890123456789012",
        "http://127.0.0.1:8080/v1",
        "http://host:80/x@y",
        "see https://host.example/a@b",
        "mail me@host.example",
        "Invalid token: 'x'",
        "unexpected token: 12345678901234567890",
        "token expired or incorrect",
        "the secret: be kind",
        "keyboard=qwerty1234567890123",
        "api_key=***",
        "Incorrect API key provided: sk-x***y.",
        f"data:image/png;base64,{'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk' * 20}==",
        "a key: see docs/keys/readme.md",
        "key=prompt-cache-main-v2",
    ],
)
def test_what_only_sounds_like_it_stays(text: str) -> None:
    assert redact(text) == text


FRAGMENTS: Final = st.sampled_from(
    [
        *KEYS.values(), *WORDS, LABEL, "key", "api_key", "token", "password", "secret", "Authorization", "Bearer ",
        "=", ": ", '"', "'", '\\"', "\\", " ", "\n", ",", "&", "://", "@", ":", "/", ".", "-", "[", "]", "sk-", HEX,
        "-----BEGIN PRIVATE " "KEY-----", "-----END PRIVATE " "KEY-----", "ſ", "\u212a", "中", "user", "1",
    ]
)  # fmt: skip
TEXTS: Final = st.lists(FRAGMENTS | st.text(max_size=3), max_size=25).map("".join)


@settings(max_examples=1500)
@given(TEXTS)
def test_a_second_time_changes_nothing(text: str) -> None:
    once = redact(text)

    assert redact(once) == once


@settings(max_examples=1000)
@example("pa\u017f\u017fword=letmein")
@example("api_\u212aey=letmein")
@given(TEXTS)
def test_a_text_without_marks_has_nothing_to_find(text: str) -> None:
    assert redact(text) == redaction._SECRET.sub(redaction._without, text)


@pytest.mark.parametrize("name", ["key", "token", "secret", "authorization", "api_key"])
@pytest.mark.parametrize("key", [pytest.param(key, id=name) for name, key in KEYS.items()])
def test_a_key_in_a_sentence_behind_a_name_is_taken_out_and_the_sentence_stays(name: str, key: str) -> None:
    assert redact(f'{{"{name}": "it was {key} today"}}') == f'{{"{name}": "it was {LABEL} today"}}'


@settings(max_examples=500)
@example(KEYS["AWS"], 'key:"', "")
@given(st.sampled_from(sorted(KEYS.values())), TEXTS, TEXTS)
def test_no_key_survives_between_spaces(key: str, before: str, after: str) -> None:
    assert f" {key} " not in redact(f"{before} {key} {after}")


ADVERSARIES: Final = {
    "a dotted run": "a.", "a dotted run of hex": HEX + ".", "digits": "1234567890", "separators": "=:", "commas": "',",
    "sk-": "sk-", "xoxb-": "xoxb-", "JWTs that never come": "eyJ", "JWTs cut short": "eyJ-.", "slashes": "://",
    "users": "://a:", "users with an @": "://user:a@", "keys of keys": ":key=", "quoted keys": 'key":"',
    "backslashes": "\\", "keys and backslashes": "key" + "\\" * 7,
    "blocks that begin": "-----BEGIN PRIVATE " "KEY-----",
    "bearers": "bearer ", "basic bearers": "basic  bearer ", "passwords": "password", "open quotes": "password='",
    "spaces": " ", "api_key_": "api_key_", "tokens and spaces": "token   ", "underscores": "_", "hex": HEX,
    "a key and a dotted run": "password=x a.b.c.d.e.f.g.h.", "@": "@", "key=[key]": "key=[key]",
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [pytest.param(unit, id=name) for name, unit in ADVERSARIES.items()])
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    """Ten times the text may take twenty times as long: what is quadratic takes a hundred."""
    marked = "password=hunter2 "  # past the look for marks
    small, large = (marked + (unit * (size // len(unit) + 1))[:size] for size in (20_000, 200_000))
    floor_s = 0.005

    for _ in range(5):
        took = [max(floor_s, cpu_s(lambda text=text: redact(text))) for text in (small, large)]  # type: ignore[misc]
        if took[1] <= 20 * took[0]:
            return
    pytest.fail(f"{took[0]:.4f} s for {len(small)} characters, {took[1]:.4f} s for {len(large)}")


def cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_a_million_characters_are_done_in_a_moment() -> None:
    began = time.thread_time()

    redact("password=x " + "a.b-c_d " * 125_000)

    assert time.thread_time() - began < 3.0
