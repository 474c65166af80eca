"""What a real llama.cpp server says of its model."""

from __future__ import annotations

import asyncio

import pytest

from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.bench.model_server import CONTEXT_TOKENS, SLOTS, ModelServer
from covey.protocol.settings import ProviderSettings
from covey.supervisor.model_cache import Learned
from covey.supervisor.model_refresh import ask_all


@pytest.mark.real_model
def test_a_real_server_tells_the_window_that_a_call_has(model_server: ModelServer) -> None:
    provider = ProviderSettings(name="local", base_url=model_server.base_url)

    (found,) = asyncio.run(ask_all([provider], EnvironmentKeys({})))

    assert isinstance(found, Learned)
    (model,) = found.models
    # The model was trained with 8192; the server gives each of its slots an equal share of the context.
    assert model.facts.context_window == CONTEXT_TOKENS // SLOTS
