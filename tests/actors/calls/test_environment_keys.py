"""Keys from the environment alone: one for each provider, or words about what is missing."""

from __future__ import annotations

import pytest

from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.protocol.destination import fingerprint
from covey.protocol.errors import NoKey
from covey.protocol.settings import ProviderSettings

KEYED = ProviderSettings(name="sim", base_url="https://sim.example", api_key_env="SIM_KEY")
KEYLESS = ProviderSettings(name="local", base_url="http://127.0.0.1:1")


async def test_the_key_is_the_variables() -> None:
    key = await EnvironmentKeys({"SIM_KEY": "sk-1"}).choose(KEYED)

    assert (key.secret, key.fingerprint) == ("sk-1", fingerprint("sk-1"))
    assert "sk-1" not in repr(key)


async def test_a_provider_that_needs_none_gets_none() -> None:
    key = await EnvironmentKeys({}).choose(KEYLESS)

    assert (key.secret, key.fingerprint) == (None, None)


@pytest.mark.parametrize("environment", [{}, {"SIM_KEY": ""}], ids=["unset", "empty"])
async def test_a_variable_that_is_not_set_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(NoKey, match="SIM_KEY is not set; provider sim needs its key there"):
        await EnvironmentKeys(environment).choose(KEYED)


async def test_there_is_no_second_key() -> None:
    keys = EnvironmentKeys({"SIM_KEY": "sk-1"})
    key = await keys.choose(KEYED)

    assert await keys.renew(KEYED, key) is None
    with pytest.raises(NoKey):
        await keys.choose(KEYED, avoid=frozenset({fingerprint("sk-1") or ""}))
