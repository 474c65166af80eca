"""Backend identity: what fails together and what does not, incident by incident, and never by what is not known."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.backend import NO_CREDENTIAL, Backend, is_same, same_url, surface
from covey.protocol.fault_kinds import FaultScope

URL, OTHER_URL = "https://api.example.com/v1", "https://pool-2.example.com/v1"
KEY, OTHER_KEY = "aaaaaaaaaaaa", "bbbbbbbbbbbb"

REQUEST, MODEL, CREDENTIAL = FaultScope.REQUEST, FaultScope.MODEL, FaultScope.CREDENTIAL
ENDPOINT, ACCOUNT, LOCAL = FaultScope.ENDPOINT, FaultScope.ACCOUNT, FaultScope.LOCAL

FAILED = Backend("main", "large", URL, KEY)


def but(**axes: str | None) -> Backend:
    """The failed backend, but for these axes."""
    return msgspec.structs.replace(FAILED, **axes)


@pytest.mark.parametrize(
    ("candidate", "scope", "is_failed_too"),
    [
        pytest.param(but(provider="alias"), MODEL, True, id="an alias with the same URL, model and key is no other"),
        pytest.param(but(provider="alias"), ACCOUNT, True, id="nor is its account"),
        pytest.param(
            but(provider="oauth", credential=OTHER_KEY), CREDENTIAL, False, id="two entries on one host with own keys"
        ),
        pytest.param(but(provider="oauth", credential=OTHER_KEY), MODEL, False, id="nor do they share a model"),
        pytest.param(but(model="small"), MODEL, False, id="a sibling model stays reachable when a model fails"),
        pytest.param(but(model="small"), CREDENTIAL, True, id="a refused key is refused for the sibling too"),
        pytest.param(but(model="small"), ACCOUNT, True, id="an empty account is empty for the sibling too"),
        pytest.param(but(base_url=OTHER_URL), MODEL, False, id="the same model at another URL is a pool entry"),
        pytest.param(but(base_url=OTHER_URL), ENDPOINT, False, id="whose endpoint may be well"),
        pytest.param(but(base_url=OTHER_URL), REQUEST, False, id="and which judges the request itself"),
        pytest.param(but(credential=OTHER_KEY), MODEL, False, id="two keys make two deployments"),
        pytest.param(but(credential=OTHER_KEY), ACCOUNT, False, id="and may be two accounts"),
        pytest.param(but(credential=OTHER_KEY), ENDPOINT, True, id="at one endpoint"),
        pytest.param(but(credential=OTHER_KEY), REQUEST, True, id="which says the same of the request"),
        pytest.param(but(model="small"), REQUEST, False, id="another model may take the request"),
        pytest.param(but(provider="messages"), REQUEST, False, id="another entry may have another dialect"),
        pytest.param(but(model="small", credential=OTHER_KEY), ENDPOINT, True, id="an endpoint has one URL"),
        pytest.param(FAILED, LOCAL, False, id="this machine's trouble is nobody's"),
        pytest.param(FAILED, MODEL, True, id="itself"),
    ],
)
def test_a_failure_is_another_backends_too(candidate: Backend, scope: FaultScope, is_failed_too: bool) -> None:
    assert is_same(candidate, FAILED, scope) is is_failed_too


@pytest.mark.parametrize("scope", [CREDENTIAL, ACCOUNT, MODEL])
def test_servers_without_keys_share_nothing_by_having_none(scope: FaultScope) -> None:
    here = Backend("one", "m", "http://127.0.0.1:8001/v1", NO_CREDENTIAL)
    there = Backend("two", "m", "http://127.0.0.1:8002/v1", NO_CREDENTIAL)

    assert not is_same(there, here, scope)
    assert is_same(here, here, scope)


def test_the_same_letters_are_another_key_at_another_host() -> None:
    here, there = but(base_url="https://api.z.ai/api/coding/paas/v4"), but(base_url="https://open.bigmodel.cn/api/v4")

    assert not is_same(there, here, CREDENTIAL)


def test_a_zai_key_has_two_purses_and_the_path_says_which() -> None:
    coding = Backend("zai", "glm-5", "https://api.z.ai/api/coding/paas/v4", KEY)
    messages = Backend("zai-anthropic", "glm-5", "https://api.z.ai/api/anthropic", KEY)
    by_use = Backend("zai-general", "glm-5", "https://api.z.ai/api/paas/v4", KEY)

    assert is_same(messages, coding, ACCOUNT)
    assert not is_same(by_use, coding, ACCOUNT)
    assert not is_same(coding, by_use, ACCOUNT)
    assert is_same(by_use, coding, CREDENTIAL)


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("HTTPS://API.Example.com/v1/", "https://api.example.com/v1", True),
        ("https://api.example.com/V1", "https://api.example.com/v1", False),
        ("API.example.com/v1", "api.example.com/v1", True),
        ("https://api.example.com", "https://API.example.com/", True),
        ("http://api.example.com/v1", "https://api.example.com/v1", False),
        (" https://a.b/v1 ", "https://a.b/v1", True),
    ],
)
def test_only_scheme_and_authority_lose_their_capitals(one: str, other: str, is_one: bool) -> None:
    assert (same_url(one) == same_url(other)) is is_one


# --- for any backends ------------------------------------------------------------------------------------------------

BACKENDS = st.builds(
    Backend,
    st.sampled_from([None, "", "one", "two"]),
    st.sampled_from([None, " ", "m", "n"]),
    st.sampled_from([None, "", URL, URL + "/", OTHER_URL, "https://api.z.ai/api/paas/v4", "not a url"]),
    st.sampled_from([None, "", KEY, OTHER_KEY, NO_CREDENTIAL]),
)
SCOPES = st.sampled_from(FaultScope)


@given(BACKENDS, SCOPES)
def test_two_that_know_nothing_are_never_the_same(failed: Backend, scope: FaultScope) -> None:
    nobody = Backend(None, None, None, None)

    assert not is_same(nobody, failed, scope)
    assert not is_same(nobody, nobody, scope)


NEEDED = {
    REQUEST: {"provider", "model", "base_url"},
    MODEL: {"model", "base_url", "credential"},
    CREDENTIAL: {"base_url", "credential"},
    ACCOUNT: {"base_url", "credential"},
    ENDPOINT: {"base_url"},
    LOCAL: set[str](),
}


@given(BACKENDS, BACKENDS, SCOPES)
def test_an_unknown_axis_proves_nothing(candidate: Backend, failed: Backend, scope: FaultScope) -> None:
    if is_same(candidate, failed, scope):
        assert all((getattr(one, axis) or "").strip() for one in (candidate, failed) for axis in NEEDED[scope])


@given(BACKENDS, SCOPES, st.data(), st.sampled_from([None, "", "  "]))
def test_who_forgets_a_needed_axis_is_the_same_as_nobody(
    failed: Backend, scope: FaultScope, data: st.DataObject, unknown: str | None
) -> None:
    if not NEEDED[scope]:
        return
    axis = data.draw(st.sampled_from(sorted(NEEDED[scope])))
    less = msgspec.structs.replace(failed, **{axis: unknown})

    assert surface(less, scope) is None
    assert not is_same(less, failed, scope)
    assert not is_same(less, less, scope)


@given(BACKENDS, BACKENDS, BACKENDS, SCOPES)
def test_sameness_is_mutual_and_goes_on(one: Backend, two: Backend, three: Backend, scope: FaultScope) -> None:
    assert is_same(one, two, scope) == is_same(two, one, scope)
    if is_same(one, two, scope) and is_same(two, three, scope):
        assert is_same(one, three, scope)
