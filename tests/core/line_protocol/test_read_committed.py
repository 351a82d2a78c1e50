"""CONSUME beside transactions: a client that reads until `hw` reaches the end and sees committed messages alone."""

from __future__ import annotations

import re

from core.broker.broker import Broker
from core.line_protocol.commands import HANDLERS
from core.line_protocol.listener import LineListener
from core.types import TopicPartition
from tests.core.transactional_log import TransactionalLog, a_bit_of_each


async def consume(session: object, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """The messages of one CONSUME, and its `hw`."""
    answer = session.handle(memoryview(b"V1|1|CONSUME|t 0 %d" % offset))  # type: ignore[attr-defined]
    (line,) = answer if isinstance(answer, list) else await answer
    found = re.fullmatch(rb"V1\|1\|OK\|messages=(.*) hw=(\d+)\n", bytes(line))
    assert found is not None, bytes(line)
    messages = [one.partition(b":") for one in found[1].split(b",") if one]
    return [(int(at), value) for at, _, value in messages], int(found[2])


async def test_a_client_reads_committed_messages_up_to_hw(broker: Broker) -> None:
    await broker.topics.create("t")
    log = TransactionalLog(broker, TopicPartition("t", 0))
    a_bit_of_each(log)
    session = LineListener(broker, HANDLERS).session()
    session.connected("127.0.0.1", "127.0.0.1")
    for offset in range(log.stable + 1):
        seen, at, hw = [], offset, log.stable
        while at < hw:
            messages, hw = await consume(session, at)
            seen += messages
            at = messages[-1][0] + 1 if messages else hw
        assert (seen, hw) == (log.seen(offset), log.stable)
    assert await consume(session, log.stable + 1) == ([], log.stable)


async def test_a_run_of_aborted_messages_is_passed_in_one_answer(broker: Broker) -> None:
    await broker.topics.create("t", configs={"segment.bytes": "1000"})
    log = TransactionalLog(broker, TopicPartition("t", 0))
    for i in range(30):
        log.write(1, f"aborted-{i}")
        log.end(1, commit=False)
    session = LineListener(broker, HANDLERS).session()
    session.connected("127.0.0.1", "127.0.0.1")
    # No messages: there are none below hw, where the client continues.
    assert await consume(session, 0) == ([], 60)
    log.write(0, "here")
    assert await consume(session, 0) == ([(60, b"here")], 61)
