"""`sluice health`: what it says of the broker of a data directory."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from app.__main__ import main
from app.health import problem


class Answers(BaseHTTPRequestHandler):
    """Ready, or what the server was given."""

    def do_GET(self) -> None:
        status = getattr(self.server, "status", 200) if self.path == "/readyz" else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"starting")

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@contextmanager
def listening(status: int, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """An HTTP server that answers with this status; gives its port."""
    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.status = status  # type: ignore[attr-defined]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def written(directory: Path, *listeners: str) -> Path:
    (directory / "listeners.json").write_text(json.dumps(listeners))
    return directory


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_broker_that_is_ready_is_found_by_its_data_directory(tmp_path: Path) -> None:
    with listening(200) as port:
        written(tmp_path, "kafka://0.0.0.0:1", f"http://0.0.0.0:{port}?auth=token")
        assert problem(tmp_path) == ""
        done = CliRunner().invoke(main, ["health"], env={"SLUICE_DATA_DIR": str(tmp_path)})
    assert (done.exit_code, done.output) == (0, "The broker is ready.\n")


def test_a_self_signed_certificate_of_another_name_is_no_obstacle(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("broker.example.org").configure_cert(context)
    with listening(200, context) as port:
        assert problem(written(tmp_path, f"https://127.0.0.1:{port}?auth=basic,token")) == ""


def test_a_broker_that_is_not_ready_says_why(tmp_path: Path) -> None:
    with listening(503) as port:
        written(tmp_path, f"http://127.0.0.1:{port}")
        done = CliRunner().invoke(main, ["health", "--data-dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (1, "sluice: /readyz answers 503: starting\n")


def test_the_next_listener_is_asked_if_one_does_not_answer(tmp_path: Path) -> None:
    with listening(200) as port:
        assert problem(written(tmp_path, f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}")) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no "),
        ("{", "Cannot read "),
        ('["kafka://127.0.0.1:1"]', "names no HTTP listener"),
    ],
)
def test_without_an_http_listener_it_fails(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "listeners.json").write_text(text)
    assert said in problem(tmp_path)


def test_a_broker_that_was_killed_is_not_ready(tmp_path: Path) -> None:
    """Its list of listeners is still in its directory."""
    assert "does not answer" in problem(written(tmp_path, f"http://127.0.0.1:{closed_port()}"))
