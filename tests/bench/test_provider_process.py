"""The simulated provider as a process: how it starts, says where it is, and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import COMMAND, ProviderDied, ProviderProcess

ARGV = [sys.executable, *COMMAND]


def open_stream(port: int) -> socket.socket:
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "say: a b c d e"}]}'
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert client.recv(100).startswith(b"HTTP/1.1 200")
    return client


def test_one_line_says_where_it_listens() -> None:
    with subprocess.Popen([*ARGV, "--port=0", "--json"], stdout=subprocess.PIPE) as provider:
        assert provider.stdout is not None
        line = json.loads(provider.stdout.readline())
        provider.terminate()
        rest = provider.stdout.read()

    assert line == {"base_url": f"http://127.0.0.1:{line['port']}/v1", "port": line["port"]}
    assert (rest, provider.returncode) == (b"", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_stops_it_at_once_with_0_and_cuts_open_streams(number: signal.Signals) -> None:
    with subprocess.Popen([*ARGV, "--think-s=0", "--chunk-pace-s=60"], stdout=subprocess.PIPE) as provider:
        assert provider.stdout is not None
        with open_stream(json.loads(provider.stdout.readline())["port"]) as client:
            began = time.monotonic()
            provider.send_signal(number)
            rest = b"".join(iter(lambda: client.recv(65536), b""))
            code = provider.wait(5)

    assert code == 0
    assert time.monotonic() - began < 2.0
    assert not rest.endswith(b"0\r\n\r\n")


def test_a_provider_that_does_not_listen_to_sigterm_is_killed_at_the_deadline() -> None:
    with ProviderProcess() as provider:
        os.kill(provider.pid, signal.SIGSTOP)

        assert provider.stop(deadline_s=0.2) == -signal.SIGKILL


@pytest.mark.kill
def test_it_does_not_outlive_the_program_that_started_it() -> None:
    code = (
        "from covey.bench.provider_process import ProviderProcess\n"
        "with ProviderProcess() as provider:\n"
        "    print(provider.pid, flush=True)\n"
        "    input()\n"
    )
    argv = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        provider = psutil.Process(int(starter.stdout.readline()))
        starter.kill()

    gone, alive = psutil.wait_procs([provider], timeout=5)
    assert (len(gone), alive) == (1, [])


def test_a_bad_script_starts_nothing_and_says_where_it_is_bad(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules:\n  - goal: x\n    think_s: fast\n", encoding="utf-8")

    with pytest.raises(ProviderDied, match=r"script.yaml:3: rules\[0\].think_s: .*seconds from 0 to 3600") as caught:
        ProviderProcess(ProviderOptions(script=str(script))).__enter__()
    assert caught.value.code == 2


def test_a_port_that_is_taken_is_named() -> None:
    with ProviderProcess() as first:
        with pytest.raises(ProviderDied, match=f"cannot listen on 127.0.0.1 port {first.port}: .*in use"):
            ProviderProcess(ProviderOptions(port=first.port)).__enter__()
        assert first.stats().calls == 0


@pytest.mark.parametrize(
    "option",
    ["--limit=0", "--limit=x", "--limit=-1", "--port=65536", "--think-s=nan", "--think-s=-1", "--over-code=1303"],
)
def test_an_option_that_cannot_be_meant_is_refused(option: str) -> None:
    done = subprocess.run([*ARGV, option], capture_output=True, text=True, timeout=20, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert option.partition("=")[0] in done.stderr


def test_options_survive_the_command_line() -> None:
    from argparse import ArgumentParser

    from covey.bench.provider import add_arguments

    given = ProviderOptions(limit=7, think_s=0.5, script="-odd name", over_code="1305", retry_after_s=3, chunks=9)
    parser = ArgumentParser()
    add_arguments(parser)

    parsed = vars(parser.parse_args(given.arguments()))
    assert {name: parsed[name] for name in given.__struct_fields__} == {
        name: getattr(given, name) for name in given.__struct_fields__
    }


def test_the_command_is_described_without_loading_the_server() -> None:
    code = "import sys, covey.bench.provider; print(*{'h11', 'asyncio', 'yaml', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=20, check=True)

    assert done.stdout == "\n"
