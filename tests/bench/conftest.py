"""A simulated provider for the tests of a module, as good as new in each of them. Who wants another makes his own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderProcess]:
    with ProviderProcess(ProviderOptions(limit=9, think_s=0, chunk_pace_s=0, chunks=5)) as running:
        yield running


@pytest.fixture
def provider(server: ProviderProcess) -> ProviderProcess:
    server.clear()
    server.reset()
    return server


@pytest.fixture
def http(provider: ProviderProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=provider.base_url, trust_env=False, timeout=5) as client:
        yield client
