"""An HTTP server that answers what a test tells it: for what a real gateway does only on its worst days."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx


@dataclass
class Reply:
    """What a gateway of a test answers: a status, a body, a media type; or nothing, and it hangs up."""

    status: int = 200
    body: Any = None
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    hang_up: bool = False
    # Base URL of a real gateway that is asked, and whose answer is passed on, or (`hang_up`) lost.
    forward: str = ""
    # A content length that is not the body's: the answer breaks off.
    declared: int | None = None


class FakeGateway:
    """An HTTP server that answers what it is told, request after request, and remembers what it was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[tuple[str, str, bytes, dict[str, str]]] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                gateway.requests.append((self.command, self.path, body, headers))
                reply = gateway.replies.pop(0) if gateway.replies else Reply(500, {"detail": "no reply left"})
                if reply.forward:
                    answer = httpx.request(
                        self.command, reply.forward + self.path, content=body, headers=headers
                    )
                    reply = replace(reply, status=answer.status_code, body=answer.content)
                if reply.hang_up:
                    self.close_connection = True
                    return
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                self.send_header("content-type", reply.kind)
                length = len(content) if reply.declared is None else reply.declared
                self.send_header("content-length", str(length))
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                if reply.declared is not None:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._stopped = False
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def will_answer(self, *replies: Reply) -> None:
        """What the next requests get."""
        self.replies += replies

    def stop_listening(self) -> None:
        """Refuse connections from now on."""
        if not self._stopped:
            self._stopped = True
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def stop(self) -> None:
        """The end of the test."""
        self.stop_listening()


def problem(status: int, slug: str, detail: str, **more: Any) -> Reply:
    """A refusal as the API writes it."""
    document = {"type": f"/problems/{slug}", "title": "T", "status": status, "detail": detail, **more}
    return Reply(status, document, "application/problem+json")
