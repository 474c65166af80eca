"""Addresses of fleets, and the sockets behind them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from covey.protocol.errors import ConfigError, UsageError
from covey.supervisor.config import examine
from covey.supervisor.home import SOCKET_NAMES
from covey.supervisor.network import CannotListen, NetworkAddress, listen_at


@pytest.mark.parametrize(
    ("text", "of_broker"),
    [
        ("tcp://127.0.0.1:7411", "tcp://127.0.0.1:7413"),
        ("tcp://fleet.example.org:1", "tcp://fleet.example.org:3"),
        ("tcp://[::1]:65533", "tcp://[::1]:65535"),
    ],
)
def test_each_service_has_a_port_of_its_own(text: str, of_broker: str) -> None:
    address = NetworkAddress.parse(text)

    assert address.of("root") == text
    assert address.of("broker") == of_broker
    assert len({address.of(service) for service in SOCKET_NAMES}) == 3


BAD = [
    "127.0.0.1:7411",
    "tcp://127.0.0.1",
    "tcp://:7411",
    "tcp://*:7411",
    "tcp://h:0",
    "tcp://h:65534",
    "tcp://h:99999",
    "tcp://h:7411/x",
    "tcp://u@h:7411",
    "udp://h:7411",
    "ipc:///tmp/x",
    "tcp://h:07411",
    "tcp://h:7411\n",
    "",
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="valid: tcp://HOST:PORT"):
        NetworkAddress.parse(text)


def test_the_configuration_refuses_it_with_its_place() -> None:
    found = examine("fleet:\n  listen: 127.0.0.1:7411\n", "config.yaml")

    (error,) = found.errors  # type: ignore[union-attr]
    assert isinstance(error, ConfigError)
    assert (error.line, error.key) == (2, "fleet.listen")
    assert "tcp://HOST:PORT" in error.valid


def test_nobody_is_listened_for_unless_it_is_configured() -> None:
    found = examine("", "config.yaml")

    assert found.settings.fleet.listen is None  # type: ignore[union-attr]


def free_ports() -> int:
    """The first of three free ports in a row."""
    for port in range(20_000 + hash(Path.cwd()) % 1000, 30_000, 3):
        try:
            for one in listen_at(NetworkAddress("127.0.0.1", port)).values():
                one.remove()
        except CannotListen:
            continue
        return port
    raise AssertionError("no three free ports in a row")


def test_a_port_that_is_taken_is_named_and_none_is_kept() -> None:
    port = free_ports()
    with (
        socket.create_server(("127.0.0.1", port + 2)),
        pytest.raises(CannotListen, match=f":{port + 2}: Address already"),
    ):
        listen_at(NetworkAddress("127.0.0.1", port))

    for one in listen_at(NetworkAddress("127.0.0.1", port)).values():
        one.remove()


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(CannotListen, match=r"tcp://192\.0\.2\.1:"):
        listen_at(NetworkAddress("192.0.2.1", 7411))
