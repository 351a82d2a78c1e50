"""Everything that was asked of Kafka 0.8.2.1 and 1.0.0, asked of ours in the same order: the same answers come back.

What differs stands in `DIFFERENCES`, with its reason and with our answer:
- `AT_ONCE`: Kafka was still making a topic of its own; ours has none to wait for.
- `KNOWN`: 0.8.2.1 names no broker before it knows of one; ours is there.
- `ONE_RULE`: the two of them differ, and ours answers as the later one.
- `STORED_REFUSED`: 0.8.2.1 refused something, and stored it nevertheless.
- `FORMAT`: 1.0.0 sent the beginning of a batch of magic 2 to a client of magic 0, because less than a whole one
  cannot be converted; ours cuts after the conversion.
- `OWN_TABLE`: the versions that are served are ours.
- `HEADER_ONLY`: Kafka closed the connection on what it does not know; ours answers as the draft of KIP-35 asks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.protocol.codec import decode_response
from core.protocol.messages.api_versions import ApiVersionsResponse
from tests.golden.replay import API_VERSIONS, Replay, open_listener, written_at
from tests.golden.traffic import Row, rows

AT_ONCE, KNOWN, ONE_RULE, STORED_REFUSED, FORMAT, OWN_TABLE, HEADER_ONLY = (
    "at once", "known", "one rule", "stored though refused", "format", "own table", "header only",
)  # fmt: skip
BROKER = "000000010000000100093132372e302e302e3100004a8a"
# File → the place of a row in it → why ours differs, and what ours answers after the correlation id.
DIFFERENCES: dict[str, dict[int, tuple[str, str]]] = {
    "kafka-0.8.2.1.json": {
        0: (KNOWN, BROKER + "000000010005000363617000000000"),
        4: (KNOWN, BROKER + "00000001001100086261642f6e616d6500000000"),
        # 7 (timed out) for acks=2, with the messages stored; from 0.9 on 21, as here, with nothing stored.
        8: (STORED_REFUSED, "00000001000363617000000001000000000015ffffffffffffffff"),
        28: (AT_ONCE, "0000000000010009" + "3132372e302e302e31" + "00004a8a"),
        29: (AT_ONCE, "0000000000010009" + "3132372e302e302e31" + "00004a8a"),
        # The commit with too much metadata was answered with error 12 by both; the position stays what it was.
        35: (
            STORED_REFUSED,
            "00000001000363617000000001000000000000000000000003" + "00056d65746131" + "0000",
        ),
        # An unknown topic was error 3; in 1.0.0 it is a position that was never committed.
        38: (ONE_RULE, "0000000100046e6f70650000000100000000ffffffffffffffff00000000"),
        39: (HEADER_ONLY, ""),
        40: (HEADER_ONLY, ""),
    },
    "kafka-1.0.0.json": {
        18: (
            FORMAT,
            "0000000100036361700000000100000000000000000000000000120000001400000000000000000000"
            "00103b986b540000ffff",
        ),
        38: (AT_ONCE, "0000000000010009" + "3132372e302e302e31" + "00004a9c"),
        **dict.fromkeys(range(78, 82), (OWN_TABLE, "")),
        82: (HEADER_ONLY, ""),
        83: (HEADER_ONLY, ""),
    },
}
# What 0.8.2.1 stored in row 8 all the same; without it, all later offsets would differ.
STORED_WITH_ACKS_2 = 8
PORTS = {"kafka-0.8.2.1.json": 19082, "kafka-1.0.0.json": 19100}
# When the file's question "what was there before this moment" was asked.
CAPTURED_MS = {"kafka-0.8.2.1.json": 1795242564947, "kafka-1.0.0.json": 1795242555363}
LIST_OFFSETS, PRODUCE = 2, 0


def _place(row: Row) -> int:
    return int(row.name.partition("-")[0])


@pytest.mark.parametrize("name", sorted(DIFFERENCES))
async def test_every_row_is_answered_as_kafka_answered_it(tmp_path: Path, name: str) -> None:
    # In the order of their correlation ids: the file has them in the order of their answers.
    asked = sorted(rows(name), key=lambda row: row.request[4:8])
    assert len(asked) == {"kafka-0.8.2.1.json": 41, "kafka-1.0.0.json": 84}[name]
    listener = await open_listener(tmp_path, PORTS[name])
    replay = Replay(listener)
    waiting: list[tuple[Row, asyncio.Task[bytes | None]]] = []
    wrong: list[str] = []
    differing: set[int] = set()

    def look(row: Row, answer: bytes | None) -> None:
        if replay.same(row, answer):
            return
        differing.add(_place(row))
        reason, ours = DIFFERENCES[name].get(_place(row), ("none", ""))
        assert answer is not None
        if not (_is_own_table(row, answer) if reason == OWN_TABLE else answer[4:].hex() == ours):
            wrong.append(f"{row.name} (reason: {reason}): {answer[4:].hex()}")

    try:
        for row in asked:
            if row.key == LIST_OFFSETS:
                written_at(tmp_path, CAPTURED_MS[name] - 1000)
            if "waits for the first" in row.name:
                waiting.append((row, _ask_beside(replay, row)))
                await _second_member_is_in(replay, row)
                continue
            look(row, await replay.send(row))
            if name == "kafka-0.8.2.1.json" and _place(row) == STORED_WITH_ACKS_2:
                await _store_what_was_refused(replay, row)
        for row, task in waiting:
            look(row, await asyncio.wait_for(task, 60))
    finally:
        await listener.broker.close()
    assert wrong == []
    assert differing == DIFFERENCES[name].keys(), "a difference that is none any more is to be taken out"


def _ask_beside(replay: Replay, row: Row) -> asyncio.Task[bytes | None]:
    """Another client's request, which is answered when the first client has moved."""
    return asyncio.get_running_loop().create_task(Replay(replay.listener, replay.ids).send(row))


async def _second_member_is_in(replay: Replay, row: Row) -> None:
    """Its id is not known from an answer yet, and the next rows show it."""
    await asyncio.sleep(0.01)
    view = replay.listener.broker.groups.describe("cg")
    assert view is not None and row.response is not None
    replay.learn(row.response, view.members[-1].member_id.encode())


async def _store_what_was_refused(replay: Replay, row: Row) -> None:
    acks_at = row.request.index(b"cap") + len("cap")
    again = bytearray(row.request)
    again[acks_at : acks_at + 2] = (1).to_bytes(2, "big")
    assert (row.key, row.request[acks_at : acks_at + 2]) == (PRODUCE, b"\0\2")
    answer = await replay.client.raw(bytes(again))
    assert answer is not None


def _is_own_table(row: Row, answer: bytes) -> bool:
    """ApiVersions: served versions in their own layout, others as version 0 with error 35 and the table too."""
    served = row.version <= 4
    found = decode_response(API_VERSIONS, row.version if served else 0, answer, 4)
    assert isinstance(found, ApiVersionsResponse)
    offered = {api.api_key: (api.min_version, api.max_version) for api in found.api_keys}
    return found.error_code == (0 if served else 35) and offered[0] == (0, 13) and offered[1] == (0, 18)
