"""A server on this machine that answers in JSON, for tests that say what it answers."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self


class JsonHandler(BaseHTTPRequestHandler):
    """What a test derives its handler from."""

    protocol_version = "HTTP/1.1"

    def form(self) -> str:
        """The body of the request."""
        return self.rfile.read(int(self.headers["content-length"])).decode()

    def say(self, status: int, said: object) -> None:
        """Answer."""
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing."""


class JsonServer(ThreadingHTTPServer):
    """Serves on a thread while inside."""

    daemon_threads = True

    def __init__(self, handler: type[JsonHandler], listener: socket.socket | None = None) -> None:
        """At the socket `listener`, or one of its own."""
        super().__init__(("127.0.0.1", 0), handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener
        self.server_port = self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self.shutdown()
        self.server_close()
