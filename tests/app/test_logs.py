"""Logs: one line for each event whatever a client has sent; nothing in them that is secret; none lost at a stop."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from app.logs import (
    REQUEST_ID,
    AccessLog,
    ConsoleFormatter,
    JsonFormatter,
    Visit,
    access_log,
    configured,
    escaped,
)
from core.config import Config

EVIL = "a\nERROR root forged\r\x1b[2J\x00\u2028\u202e\x85\x7f\ud800"
JSON = Config(log_format="json", access_log=True)
CONSOLE = Config(access_log=True)


def visit(**changes: Any) -> Visit:
    usual = Visit(1_700_000_000_123, b"id-1", "127.0.0.1", "GET", "/topics", 200, 0.0015, 0, 12, b"curl/8")
    return usual._replace(**changes)


def logged(config: Config, *messages: str, **details: Any) -> str:
    stream = io.StringIO()
    with configured(config, stream):
        for message in messages:
            logging.getLogger("test").warning("%s", message, **details)
    return stream.getvalue()


def access_lines(config: Config, *visits: Visit) -> list[str]:
    stream = io.StringIO()
    with access_log(config, stream) as access:
        assert access is not None
        for one in visits:
            access.write(one)
    return stream.getvalue().splitlines()


def test_a_console_line_has_time_level_logger_and_message() -> None:
    line = logged(CONSOLE, "all is well")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING test all is well\n", line)


def test_a_json_line_is_one_object() -> None:
    document = json.loads(logged(JSON, "all is well"))
    assert document.pop("time").endswith("Z")
    assert document == {"level": "warning", "logger": "test", "message": "all is well"}


@pytest.mark.parametrize("config", [CONSOLE, JSON], ids=["console", "json"])
def test_what_a_client_sends_cannot_end_a_line_or_steer_a_terminal(config: Config) -> None:
    text = logged(config, EVIL, "next")
    assert text.count("\n") == 2 and len(text.splitlines()) == 2
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert "forged" in text.splitlines()[0]


@pytest.mark.parametrize("config", [CONSOLE, JSON], ids=["console", "json"])
def test_a_traceback_cannot_look_like_another_line(config: Config) -> None:
    stream = io.StringIO()
    with configured(config, stream):
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("test").exception("it failed")
    lines = stream.getvalue().splitlines()
    assert all(c.isprintable() for c in "".join(lines))
    if config is JSON:
        assert "ValueError" in json.loads(lines[0])["exception"] and len(lines) == 1
    else:
        assert lines[0].endswith("it failed") and all(line.startswith("  | ") for line in lines[1:])


@pytest.mark.parametrize("formatter", [ConsoleFormatter(), JsonFormatter()])
def test_the_id_of_the_request_stands_in_every_line_of_it(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("test", logging.INFO, "", 0, "hello", None, None)
    assert "request_id" not in formatter.format(record)
    token = REQUEST_ID.set(b"abc-1")
    assert re.search(r'request_id"?[=:] ?"?abc-1', formatter.format(record))
    REQUEST_ID.reset(token)


def test_what_is_below_the_level_is_not_logged() -> None:
    assert logged(replace(CONSOLE, log_level="error"), "not this") == ""
    assert "this" in logged(replace(CONSOLE, log_level="warning"), "this")


def test_printable_text_stays_as_it_is() -> None:
    assert escaped("ärger 日本 \\n") == "ärger 日本 \\n"
    assert escaped("\t\n\ud800") == "\\t\\n\\ud800"


# --- the access log -----------------------------------------------------------------------------------------


def test_an_access_line_names_client_request_and_outcome() -> None:
    (line,) = access_lines(JSON, visit())
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z", "level": "info", "logger": "access", "request_id": "id-1",
        "client": "127.0.0.1", "method": "GET", "path": "/topics", "status": 200, "ms": 1.5, "bytes_in": 0,
        "bytes_out": 12, "user_agent": "curl/8",
    }  # fmt: skip
    (line,) = access_lines(CONSOLE, visit(user_agent=b'a "b" c=d'))
    assert "INFO access request_id=id-1 client=127.0.0.1 method=GET path=/topics status=200 ms=1.5" in line
    assert line.endswith(r'user_agent="a \"b\" c=d"')


@pytest.mark.parametrize("config", [CONSOLE, JSON], ids=["console", "json"])
def test_a_forged_path_or_user_agent_stays_one_line_with_its_own_fields(config: Config) -> None:
    forged = 'x\\" status=500\nINFO access'
    lines = access_lines(config, visit(path=EVIL, user_agent=forged.encode()), visit())
    assert len(lines) == 2 and all(c.isprintable() for c in "".join(lines))
    if config is JSON:
        assert json.loads(lines[0])["status"] == 200
    else:
        # Outside of quotes there is one status.
        assert re.findall(r"status=\d+", re.sub(r'"(\\.|[^"\\])*"', "", lines[0])) == ["status=200"]


def test_a_long_path_is_cut() -> None:
    (line,) = access_lines(JSON, visit(path="/" + "a" * 60_000))
    assert len(line) < 1000


def test_all_that_was_written_is_there_after_the_end_even_from_a_full_queue() -> None:
    config = replace(JSON, access_log_queue=50)
    stream = io.StringIO()
    access = AccessLog(config, stream)
    for n in range(50):
        access.write(visit(status=n))
    access.start()
    access.stop()
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == [*range(50)]
    assert access.dropped == 0


class Stuck(io.StringIO):
    """A pipe without a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait(20)
        return super().write(text)


def test_a_stuck_stream_drops_lines_and_counts_them_and_blocks_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stuck()
    access = AccessLog(replace(JSON, access_log_queue=10, drain_timeout_ms=50), stream)
    access.start()
    for _ in range(100):
        access.write(visit())
    assert 88 <= access.dropped <= 90
    access.stop()
    assert f"{access.dropped} lines of the access log were dropped" in caplog.text
    stream.free.set()


def test_without_the_setting_there_is_no_access_log() -> None:
    before = set(threading.enumerate())
    with access_log(Config()) as access:
        assert access is None
        assert set(threading.enumerate()) <= before


async def test_writing_a_line_does_not_wait_for_the_stream() -> None:
    stream = Stuck()
    access = AccessLog(replace(JSON, drain_timeout_ms=2_000), stream)
    access.start()
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(1_000):
        access.write(visit())
    assert loop.time() - start < 1
    stream.free.set()
    access.stop()
    assert len(stream.getvalue().splitlines()) == 1_000
