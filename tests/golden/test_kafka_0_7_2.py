"""The captured traffic of Kafka 0.7.2, sent to our listener in the same order: the same bytes come back.

`DIFFERENCES` has what differs, with its reason. Three reasons explain all:
- `ONE_MAGIC`: 0.7.2 stored messages as they were sent. Ours shows all of them in the listener's format, for a client
  of one format cannot read the other; the message that was sent in magic 0 has a byte more here.
- `OPENED`: 0.7.2 stored a wrapper as it was sent. Ours shows what was in it, each message at its own address.
- `ANSWERED`: 0.7.2 closed the connection, or sent half an error code; ours answers with the error.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.config import Config, Endpoint
from core.server import Server
from tests.golden.traffic import golden_file

FILE = golden_file("kafka-0.7.2.json")
ROWS: list[dict[str, str]] = json.loads(FILE.read_text())

ONE_MAGIC, OPENED, ANSWERED = "one magic", "opened", "answered"
# The log of the topic `edge` as it is here: the second message was sent in magic 0, with a byte less.
FIRST, SECOND, THIRD = (
    "0000000901007a6c86f16f6e65",
    "0000000d010034ddd23474776f2d74776f",
    "00000006010000000000",
)
EDGE = FIRST + SECOND + THIRD + "00000042010084566879" + "78" * 60
ZIP = "0000000a010054d7db6a696e2d310000000a0100cdde8ad0696e2d32"


def sized(body: str, error: int = 0) -> str:
    """An answer with its size and error code."""
    return struct.pack(">ih", len(body) // 2 + 2, error).hex() + body


#: Case → the reason, and what ours answers.
DIFFERENCES: dict[str, tuple[str, str]] = {
    "fetch from 0, all": (ONE_MAGIC, sized(EDGE)),
    "fetch at 2nd message": (ONE_MAGIC, sized(EDGE[26:])),
    "fetch inside a message (offset 5)": (ONE_MAGIC, sized(EDGE[10:])),
    "fetch cut in the middle of the 2nd message": (ONE_MAGIC, sized(EDGE[:40])),
    # Their end, 109, lies in the last byte of the last message here; 110 is the end.
    "fetch at the end exactly": (ONE_MAGIC, sized("78")),
    "fetch one beyond the end": (ONE_MAGIC, sized("")),
    "offsets latest max 10": (ONE_MAGIC, sized("00000002000000000000006e0000000000000000")),
    "offsets latest max 1": (ONE_MAGIC, sized("00000001000000000000006e")),
    "offsets time far future": (ONE_MAGIC, sized("00000002000000000000006e0000000000000000")),
    "multifetch two good": (ONE_MAGIC, sized(sized(EDGE[:80]) + sized(EDGE[26:]))),
    "multifetch one good one unknown topic": (ONE_MAGIC, sized(sized(EDGE[:80]) + sized(""))),
    "multifetch one bad offset": (ONE_MAGIC, sized(sized(EDGE[:80]) + sized("", 1))),
    "fetch max_size -1": (ANSWERED, sized("", 4)),
    "offsets unknown partition": (ANSWERED, sized("00000000", 3)),
    "fetch the gzip wrapper back": (OPENED, sized(ZIP)),
    "fetch inside gzip wrapper (offset 3)": (OPENED, sized(ZIP[6:])),
    "offsets latest of zip": (OPENED, sized("00000002000000000000001c0000000000000000")),
}
#: Requests without an answer, and a request after them that has one.
PRODUCES = (b"\0\0", b"\0\3")
OFFSETS = next(row["request"] for row in ROWS if row["case"] == "offsets latest max 1")
FRAME_SIZES = {"frame size -1": -1, "frame size 0": 0, "frame size 3": 3, "frame size 2147483647": 2**31 - 1}
PIPELINED = "two pipelined requests (fetch max 40, offsets latest)"


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A fresh broker with one 0.7 listener."""
    server = Server(Config(data_dir=tmp_path / "data", listeners=(Endpoint("kafka07", "127.0.0.1", 0),)))
    await server.start()
    yield server.endpoints[0].port
    await server.stop()


async def answer(reader: asyncio.StreamReader) -> str:
    size = await reader.readexactly(4)
    return (size + await reader.readexactly(int.from_bytes(size, "big"))).hex()


async def outcome(port: int, request: bytes, expects_answer: bool) -> str:
    """The answer in hex, `closed`, or `open`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(answer(reader), 20 if expects_answer else 0.1)
    except TimeoutError:
        if request[4:6] in PRODUCES:
            # The next row asks over another connection, on a machine that may be slow: wait until this one is done.
            writer.write(bytes.fromhex(OFFSETS))
            await asyncio.wait_for(answer(reader), 20)
        return "open"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    finally:
        writer.close()


def theirs(row: dict[str, str]) -> str:
    """What 0.7.2 did: its answer in hex, `open` or `closed`."""
    return row.get("response") or ("open" if row["after"].startswith("open") else "closed")


async def test_every_request_is_answered_as_0_7_2_did_but_for_the_differences_listed(port: int) -> None:
    met = set()
    for row in ROWS:
        if "request" not in row:
            continue
        _, wanted = DIFFERENCES.get(row["case"], ("", theirs(row)))
        assert await outcome(port, bytes.fromhex(row["request"]), wanted != "open") == wanted, row["case"]
        if wanted != theirs(row):
            met.add(row["case"])
    assert met == set(DIFFERENCES)


async def test_bad_frames_close_the_connection_as_they_did(port: int) -> None:
    assert {row["case"] for row in ROWS if "request" not in row} == {*FRAME_SIZES, PIPELINED}
    for size in FRAME_SIZES.values():
        assert await outcome(port, struct.pack(">i", size) + b"abc", True) == "closed"


async def test_pipelined_requests_are_answered_in_their_order(port: int) -> None:
    by_case = {row["case"]: row for row in ROWS}
    produced = by_case["produce 4 messages (magic 1, magic 0, empty, 60 bytes)"]
    assert await outcome(port, bytes.fromhex(produced["request"]), False) == "open"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    chunk = by_case["fetch cut in the middle of the 2nd message"]["request"][:-8] + "00000028"
    writer.write(bytes.fromhex(chunk + by_case["offsets latest max 1"]["request"]))
    _, theirs_second = by_case[PIPELINED]["responses"]
    assert await answer(reader) == sized(EDGE[:80])
    assert await answer(reader) == theirs_second.replace("6d", "6e") == DIFFERENCES["offsets latest max 1"][1]
    writer.close()
