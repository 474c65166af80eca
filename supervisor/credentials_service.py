"""The credentials actor with the files of a home around it, as the broker's process hosts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..actors.keys.credentials import Credentials
from ..actors.ports import Request
from ..actors.runtime.ref import ActorRef
from ..protocol.messages.broker import BrokerRequest
from ..protocol.messages.credentials import CredentialsRequest
from ..protocol.settings import ProviderSettings
from .credential_file import CredentialFile
from .home import Home
from .rest_file import RestFile

LocalRequest = BrokerRequest | CredentialsRequest
"""What processes of this host may ask at the broker's socket. Other hosts may ask `RemoteBrokerRequest`."""


async def start_credentials(
    home: Home, providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> ActorRef:
    """Start it; it serves from now on."""
    return await Credentials.start_ready(
        providers=providers,
        store=CredentialFile(home),
        rests=RestFile(home),
        environ=environ,
        name="credentials",
        deadline_s=10.0,
    )


def shared_desk(broker: ActorRef, credentials: ActorRef) -> Callable[[Request[Any]], None]:
    """Give each request to the actor it is for: the broker never sees a secret."""

    def serve(request: Request[Any]) -> None:
        (credentials if isinstance(request.body, CredentialsRequest) else broker).tell(request)

    return serve
