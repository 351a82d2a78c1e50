"""What 10,000 access rules cost a produce and a fetch: processor time of one thread, in turn with no authorizer."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.case import Figure, case
from bench.load import batch_of, fetch_frame, produce_frame
from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener, KafkaSession
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import Principal

RULES = 10_000
COUNT = 500
# Microseconds that a request may take more.
TARGET = 1.0
_TOPIC, _USER = "orders-eu", "User:bob"


@case
def rules(repeats: int) -> list[Figure]:
    """Produce and fetch of 100 bytes by a user with 10,000 access rules, less the same without an authorizer."""
    return asyncio.run(_measure(repeats))


async def _measure(repeats: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Config(data_dir=Path(directory), max_acls=2 * RULES), Clock())
        await broker.open()
        try:
            await broker.topics.create(_TOPIC, partitions=1)
            broker.authorizer.add(some_rules())
            session = KafkaListener(broker, HANDLERS).session()
            session.connected("127.0.0.1", "127.0.0.1")
            session.act_as(Principal(name="bob"))
            frames = {
                "produce": produce_frame(_TOPIC, batch_of(100, 1))[4:],
                "fetch": fetch_frame(_TOPIC, 0, 100)[4:],
            }
            return [await _compared(broker, session, what, frame, repeats) for what, frame in frames.items()]
        finally:
            await broker.close()


async def _compared(broker: Broker, session: KafkaSession, what: str, frame: bytes, repeats: int) -> Figure:
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(10 * repeats):
        # Each is the first as often as the other.
        for enabled in (False, True) if number % 2 else (True, False):
            broker.authorizer.switch(enabled)
            # A refusal would cost less.
            assert session.rights.may(Operation.WRITE, ResourceType.TOPIC, _TOPIC)
            session.handle(memoryview(bytearray(frame)))
            took[enabled].append(_microseconds(session, frame))
            # What waits for the disk is not part of it.
            await asyncio.sleep(0.02)
    more = [with_rules - without for with_rules, without in zip(took[True], took[False], strict=True)]
    difference = statistics.median(more)
    return Figure(
        f"{what} with {RULES:,} access rules, more than without", difference, "µs", TARGET, samples=more
    )


def _microseconds(session: KafkaSession, frame: bytes) -> float:
    data = memoryview(bytearray(frame))
    start = time.thread_time_ns()
    for _ in range(COUNT):
        session.handle(data)
    return (time.thread_time_ns() - start) / COUNT / 1000


def some_rules() -> Iterator[Acl]:
    """Yield rules of many users, names and lengths of prefixes, and those that let the user of the case in."""
    topic, literal, prefixed = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
    for number in range(RULES - 2):
        name, pattern = (
            (f"topic-{number}", literal) if number % 2 else (f"{'p' * (number % 40)}{number}", prefixed)
        )
        permission = Permission.DENY if number % 10 == 0 else Permission.ALLOW
        yield Acl(topic, name, pattern, f"User:{number % 1000}", "*", Operation.READ, permission)
    for operation in (Operation.READ, Operation.WRITE):
        yield Acl(topic, "orders-", prefixed, _USER, "*", operation, Permission.ALLOW)
