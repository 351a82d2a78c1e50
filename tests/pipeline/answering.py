"""An HTTP server that always says the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[Any]]]:
    """An HTTP server that always says the same; its URL, and the requests that it got."""
    asked: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.path, dict(self.headers), got))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
