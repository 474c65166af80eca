"""Hosts out of whatever people write as a base URL; look-alikes never pass for Z.AI; entries and budgets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.destination import budget_key, fingerprint, host_of, is_zai, place_of, provider_for, url_of
from covey.protocol.messages.broker import Destination, ProviderLimit
from covey.protocol.settings import ZAI_BASE_URL

KEY = "0123456789abcdef0123456789abcdef.ZyXwVuTs"


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("https://api.z.ai/api/paas/v4", "api.z.ai"),
        ("api.z.ai/api/paas/v4", "api.z.ai"),
        ("https:api.z.ai/api", "api.z.ai"),
        ("https:/api.z.ai/api", "api.z.ai"),
        ("//api.z.ai/api", "api.z.ai"),
        ("https://api.z.ai./api", "api.z.ai"),
        ("HTTPS://API.Z.AI", "api.z.ai"),
        ("  https://api.z.ai\n", "api.z.ai"),
        ("https://api.z.ai?x=http://evil.example", "api.z.ai"),
        ("https://user:secret@api.z.ai:443/x", "api.z.ai"),
        ("https://api.z.ai@evil.example/", "evil.example"),
        ("https://api.z.ai:x@evil.example/", "evil.example"),
        ("https://evil.example/v1?u=http://api.z.ai", "evil.example"),
        ("evil.example/v1?u=http://api.z.ai", "evil.example"),
        ("evil.example#@api.z.ai", "evil.example"),
        ("localhost:8080/v1", "localhost"),
        ("http://127.0.0.1:9/v1", "127.0.0.1"),
        ("http://[::1]:8080/v1", "::1"),
        ("http://[0:0:0:0:0:0:0:1]/v1", "::1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("https://bücher.example/v1", "xn--bcher-kva.example"),
        ("https://ａｐｉ．ｚ．ａｉ/v1", "api.z.ai"),
        ("my_host:1234", "my_host"),
        ("", None),
        (None, None),
        ("   ", None),
        ("/v1/chat", None),
        ("https://", None),
        ("https://:8080/", None),
        ("https://api..z.ai/", None),
        ("https://api.z.ai../", None),
        ("https://api.z.ai\\@evil.example", None),
        ("https://api.z.ai\n.evil.example", None),
        ("https://api%2Ez.ai/", None),
        ("https://host:99999/", None),
        ("https://host:port/", None),
        ("https://host:٣/", None),
        ("https://[::1/", None),
        ("https://[::1]x/", None),
        ("https://[evil]/", None),
        ("https://" + "a." * 200 + "example", None),
    ],
)
def test_the_host_is_read_from_the_authority_alone(base_url: str | None, host: str | None) -> None:
    assert host_of(base_url) == host


@settings(max_examples=500)
@given(st.text(max_size=80) | st.text(alphabet="htps:/.@[]?#\\%é。z ai0", max_size=40))
def test_any_text_has_a_host_or_none_and_never_raises(text: str) -> None:
    host = host_of(text)

    assert host is None or (host == host.lower() and host.isascii() and " " not in host)


@pytest.mark.parametrize(
    ("base_url", "label", "zai"),
    [
        pytest.param("https://api.z.ai/api/paas/v4", None, True, id="general"),
        pytest.param("https://api.z.ai/api/coding/paas/v4", None, True, id="coding plan"),
        pytest.param("https://api.z.ai/api/anthropic", None, True, id="Anthropic shape"),
        pytest.param("https://open.bigmodel.cn/api/paas/v4", None, True, id="China"),
        pytest.param("https://bigmodel.cn", None, True, id="China, the domain"),
        pytest.param("https://eu.api.z.ai/v1", None, True, id="a subdomain"),
        pytest.param("https://z.ai", "zai", False, id="the web site"),
        pytest.param("https://chat.z.ai", "zai", False, id="the chat site"),
        pytest.param("https://api.z.ai.evil.example", "zai", False, id="as a prefix of a host"),
        pytest.param("https://xapi.z.ai", "zai", False, id="glued to a label"),
        pytest.param("https://evilbigmodel.cn", "zai", False, id="glued to a label, China"),
        pytest.param("https://example.com/proxy/api.z.ai", "zai", False, id="in a path"),
        pytest.param("https://evil.example/v1?u=http://api.z.ai", "zai", False, id="in a query"),
        pytest.param("https://evil.example/#api.z.ai", "zai", False, id="in a fragment"),
        pytest.param("https://api.z.ai@evil.example", "zai", False, id="in the user info"),
        pytest.param("http://localhost:8000/v1", "zai", False, id="the label on another host"),
        pytest.param(None, " Zhipu ", True, id="the label without a host"),
        pytest.param("", "z-ai", True, id="the label with an empty URL"),
        pytest.param("", "glm-5.3", False, id="a model's name is no label"),
        pytest.param("", None, False, id="nothing"),
    ],
)
def test_only_a_zai_host_is_zai(base_url: str | None, label: str | None, zai: bool) -> None:
    assert is_zai(base_url, label) is zai


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
FOREIGN = st.lists(LABEL, min_size=1, max_size=3).map(".".join).map(lambda name: f"{name}.example")
TARGET = st.sampled_from(["api.z.ai", "bigmodel.cn", "open.bigmodel.cn"])
SPOOF = st.one_of(
    st.builds("https://{}.{}/v1".format, TARGET, FOREIGN),
    st.builds("https://{}/{}".format, FOREIGN, TARGET),
    st.builds("{}?u=https://{}".format, FOREIGN, TARGET),
    st.builds("//{}#//{}".format, FOREIGN, TARGET),
    st.builds("https://{1}@{0}:8443/".format, FOREIGN, TARGET),
    st.builds("{0}:443/https://{1}".format, FOREIGN, TARGET),
    st.builds("https://{}{}/".format, LABEL, TARGET.filter(lambda name: name != "open.bigmodel.cn")),
    st.builds(lambda target, foreign: f"https://{target.replace('.', '-')}.{foreign}", TARGET, FOREIGN),
)


@settings(max_examples=500)
@given(SPOOF, st.sampled_from([None, "zai", "glm"]))
def test_a_look_alike_is_never_zai(base_url: str, label: str | None) -> None:
    assert not is_zai(base_url, label)


@given(
    scheme=st.sampled_from(["https://", "http://", "HTTPS://", "https:", "//", ""]),
    user=st.sampled_from(["", "me@", "me:secret@"]),
    sub=st.sampled_from(["", "eu.", "a.b."]),
    target=TARGET,
    dot=st.sampled_from(["", "."]),
    port=st.sampled_from(["", ":443", ":8443"]),
    rest=st.sampled_from(["", "/", "/api/paas/v4", "?u=http://evil.example", "#x", "/@evil.example"]),
)
def test_every_spelling_of_a_zai_host_is_zai(  # noqa: PLR0917 -- hypothesis passes them by name
    scheme: str, user: str, sub: str, target: str, dot: str, port: str, rest: str
) -> None:
    assert is_zai(f"{scheme}{user}{sub}{target}{dot}{port}{rest}")


def test_a_fingerprint_names_a_key_without_telling_it() -> None:
    mark = fingerprint(KEY)

    assert mark is not None
    assert len(mark) == 12
    assert set(mark) <= set("0123456789abcdef")
    assert mark == fingerprint(f" {KEY}\n")
    assert mark != fingerprint(KEY[:-1])
    assert mark not in KEY


def test_a_fingerprint_stays_the_same_over_releases() -> None:
    assert fingerprint("covey-test-key") == "0c9d8cfcc298"


@pytest.mark.parametrize("key", [None, "", "  \n"])
def test_no_key_has_no_fingerprint(key: str | None) -> None:
    assert fingerprint(key) is None


def limit(provider: str, base_url: str) -> ProviderLimit:
    return ProviderLimit(provider=provider, base_url=base_url, max_concurrent=2)


ENTRIES = (
    limit("local", "http://127.0.0.1:8080/v1"),
    limit("other", "https://llm.example/v1"),
    limit("team-a", "https://shared.example/a"),
    limit("team-b", "https://shared.example/a/b"),
    limit("zai", ZAI_BASE_URL),
)


@pytest.mark.parametrize(
    ("base_url", "label", "provider"),
    [
        pytest.param("https://api.z.ai/api/anthropic", None, "zai", id="the other dialect of Z.AI"),
        pytest.param("https://open.bigmodel.cn/api/paas/v4", "mine", "zai", id="Z.AI's other host"),
        pytest.param("", "glm", "zai", id="Z.AI by label"),
        pytest.param("https://api.z.ai.evil.example/", "zai", None, id="a look-alike of Z.AI"),
        pytest.param("https://llm.example/v1/", None, "other", id="the same URL"),
        pytest.param("http://LLM.example./anything?x", None, "other", id="same host, other scheme and path"),
        pytest.param("https://llm.example:443", None, "other", id="the usual port spelt out"),
        pytest.param("https://llm.example:8443/v1", None, None, id="another port"),
        pytest.param("https://sub.llm.example/v1", None, None, id="a subdomain is another host"),
        pytest.param("http://localhost:8080/v1", None, "local", id="another name of this machine"),
        pytest.param("http://localhost:8081/v1", None, None, id="another port of this machine"),
        pytest.param("https://shared.example/a/x", None, "team-a", id="the path decides at one host"),
        pytest.param("https://shared.example/a/b/c", None, "team-b", id="the longest path decides"),
        pytest.param("https://shared.example/a/bc", None, "team-a", id="whole path segments"),
        pytest.param("https://shared.example/", None, "team-a", id="no path fits: the first entry"),
        pytest.param("", " Other ", "other", id="the label where there is no host"),
        pytest.param("https://unknown.example", "other", None, id="no label where there is a host"),
        pytest.param("", None, None, id="nothing"),
    ],
)
def test_a_call_draws_on_the_entry_of_its_destination(base_url: str, label: str | None, provider: str | None) -> None:
    assert provider_for(Destination(base_url=base_url, provider=label), ENTRIES) == provider


def test_zai_draws_on_an_entry_at_zai_under_another_name() -> None:
    entries = [limit("local", "http://localhost:1/v1"), limit("plan", "https://open.bigmodel.cn/api/paas/v4")]

    assert provider_for(Destination(base_url="https://api.z.ai/api/anthropic"), entries) == "plan"


def test_an_entry_called_zai_at_another_host_limits_that_host_too() -> None:
    entries = [limit("zai", "http://127.0.0.1:4000/v1")]

    assert provider_for(Destination(base_url="http://127.0.0.1:4000/v1"), entries) == "zai"


def test_without_entries_nothing_is_limited() -> None:
    assert provider_for(Destination(base_url=ZAI_BASE_URL), []) is None


def test_a_budget_is_an_account() -> None:
    assert budget_key("zai", "1f2e3d4c5b6a") == "zai:1f2e3d4c5b6a"
    assert budget_key("zai", None) == "zai:none"
    assert budget_key("my own: ü", "1f2e3d4c5b6a").isascii()
    assert " " not in budget_key("my own: ü", None)


def test_both_dialects_of_one_key_share_a_budget() -> None:
    urls = ("https://api.z.ai/api/anthropic", "api.z.ai/api/coding/paas/v4", "https://open.bigmodel.cn/api/paas/v4")
    keys = {budget_key(provider_for(Destination(base_url=url), ENTRIES) or "", fingerprint(KEY)) for url in urls}

    assert len(keys) == 1


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://llm.example/v1", "https://llm.example/v1"),
        ("llm.example/v1", "https://llm.example/v1"),
        ("//llm.example/v1", "https://llm.example/v1"),
        ("HTTP:llm.example:80/v1", "http://llm.example:80/v1"),
        (" http:/llm.example ", "http://llm.example"),
    ],
)
def test_a_base_url_is_spelt_out(base_url: str, url: str) -> None:
    assert url_of(base_url) == url
    assert place_of(url) == place_of(base_url)
