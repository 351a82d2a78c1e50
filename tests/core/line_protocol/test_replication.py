"""REPLICA_FETCH and SET_PARTITION_ROLE, and what they do to PRODUCE and CONSUME: a follower played by hand.

The peer of this broker is not there. What it would say of the log of metadata is said in its name all the time, so
that topics can be created; what it would say of their partitions is said by lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config, Peer
from core.errors import BrokerError
from core.line_protocol.commands import HANDLERS
from core.line_protocol.listener import LineListener
from core.vocabulary.replicas import METADATA

ABSENT = Peer(2, "127.0.0.1", 1)


class Speaker:
    """Says lines to a listener without a socket."""

    def __init__(self, broker: Broker) -> None:
        self._session = LineListener(broker, HANDLERS).session()
        self._session.connected("127.0.0.1", "127.0.0.1")

    async def __call__(self, args: str) -> str:
        """The answer to a command, without `V1|1|`."""
        answer = self._session.handle(memoryview(f"V1|1|{args}".encode()))
        if not isinstance(answer, list):
            assert answer is not None
            answer = await answer
        (line,) = answer or []
        assert isinstance(line, bytes)
        text = line.decode()
        assert text.startswith("V1|1|") and text.endswith("\n")
        return text[5:-1]


async def opened(directory: Path, **settings: object) -> Broker:
    broker = Broker(Config(data_dir=directory, text_acks_timeout_ms=300, **settings), Clock())  # type: ignore[arg-type]
    await broker.open()
    return broker


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Speaker]:
    """A broker without peers."""
    broker = await opened(tmp_path)
    yield Speaker(broker)
    await broker.close()


@pytest.fixture
async def say(tmp_path: Path) -> AsyncIterator[Speaker]:
    """A broker whose peer is absent, with the topic `orders` of one partition and two replicas."""
    broker = await opened(tmp_path, peers=(ABSENT,), replica_lag_time_max_ms=400)

    async def play_the_follower_of_metadata() -> None:
        while True:
            with suppress(BrokerError):
                broker.roles.report_progress(
                    METADATA, 2, broker.partitions.info(METADATA).offsets.log_end_offset
                )
            await asyncio.sleep(0.01)

    await broker.roles.set(METADATA, "leader")
    playing = asyncio.create_task(play_the_follower_of_metadata())
    say = Speaker(broker)
    for _ in range(200):
        answer = await say("CREATE|orders partitions=1 replication_factor=2")
        if answer.startswith("OK"):
            break
        await asyncio.sleep(0.02)
    assert answer == "OK|topic=orders partitions=1 replication_factor=2"
    yield say
    playing.cancel()
    await broker.close()


async def test_acks_all_waits_for_the_follower_and_is_told_when_it_does_not_come(say: Speaker) -> None:
    assert await say("PRODUCE|orders k:one") == "OK|partition=0 offset=0 hw=0"
    assert await say("CONSUME|orders 0 0") == "OK|messages= hw=0"
    assert await say("REPLICA_FETCH|orders 0 1 1") == (
        "OK|replica=1 acked_offset=1 hw=1 isr=[0,1] under_replicated=false"
    )
    assert await say("CONSUME|orders 0 0") == "OK|messages=0:one hw=1"
    late = await say("PRODUCE|orders k:two acks=all")
    assert late.startswith("ERR|REPLICATION_TIMEOUT|REQUEST_TIMED_OUT: ")
    assert await say("CONSUME|orders 0 1") == "OK|messages= hw=1"
    waiting = asyncio.create_task(say("PRODUCE|orders k:three acks=all"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await say("REPLICA_FETCH|orders 0 1 3") == (
        "OK|replica=1 acked_offset=3 hw=3 isr=[0,1] under_replicated=false"
    )
    assert await waiting == "OK|partition=0 offset=2 hw=3"
    assert await say("CONSUME|orders 0 1") == "OK|messages=1:two,2:three hw=3"


async def test_a_follower_that_lags_leaves_the_in_sync_set_and_comes_back(say: Speaker) -> None:
    await say("PRODUCE|orders k:one")
    await say("REPLICA_FETCH|orders 0 1 1")
    await say("PRODUCE|orders k:two")
    for _ in range(100):
        await asyncio.sleep(0.05)
        behind = await say("REPLICA_FETCH|orders 0 1 1")
        if "[0,1]" not in behind:
            break
    assert behind == "OK|replica=1 acked_offset=1 hw=1 isr=[0] under_replicated=true"
    refused = await say("PRODUCE|orders k:three acks=all")
    assert refused.startswith("ERR|REPLICATION_TIMEOUT|NOT_ENOUGH_REPLICAS: ")
    assert await say("PRODUCE|orders k:three acks=1") == "OK|partition=0 offset=2 hw=1"
    assert await say("REPLICA_FETCH|orders 0 1 3") == (
        "OK|replica=1 acked_offset=3 hw=3 isr=[0,1] under_replicated=false"
    )


async def test_a_partition_that_is_led_elsewhere_takes_no_writes_until_it_is_led_here(say: Speaker) -> None:
    await say("PRODUCE|orders k:one")
    await say("REPLICA_FETCH|orders 0 1 1")
    assert await say("SET_PARTITION_ROLE|orders 0 follower") == (
        "OK|topic=orders partition=0 role=follower hw=1"
    )
    for acks in ("0", "1", "all"):
        assert (await say(f"PRODUCE|orders k:v acks={acks}")).startswith("ERR|NOT_LEADER|")
    # Until another broker leads, followers still copy from it.
    assert (await say("REPLICA_FETCH|orders 0 1 1")).startswith("OK|replica=1 acked_offset=1 hw=1 ")
    assert await say("SET_PARTITION_ROLE|orders 0 leader") == "OK|topic=orders partition=0 role=leader hw=1"
    assert await say("PRODUCE|orders k:two") == "OK|partition=0 offset=1 hw=1"


@pytest.mark.parametrize(
    "args", ["orders 0 0 0", "orders 0 2 0", "orders 0 -1 0", "orders 0 1 99", "orders 0 1 -1"]
)
async def test_a_follower_that_cannot_be_is_a_bad_request(say: Speaker, args: str) -> None:
    assert (await say(f"REPLICA_FETCH|{args}")).startswith("ERR|BAD_REQUEST|")


async def test_one_broker_alone_has_no_followers_and_can_still_step_down(alone: Speaker) -> None:
    assert await alone("PRODUCE|orders k:one acks=all") == "OK|partition=0 offset=0 hw=1"
    assert await alone("REPLICA_FETCH|orders 0 1 1") == (
        "ERR|BAD_REQUEST|INVALID_REQUEST: The replica ids of the followers of orders-0 are none, for there is no "
        "follower; 0 is the leader."
    )
    assert await alone("SET_PARTITION_ROLE|orders 0 leader") == "OK|topic=orders partition=0 role=leader hw=1"
    assert await alone("SET_PARTITION_ROLE|orders 0 follower") == (
        "OK|topic=orders partition=0 role=follower hw=1"
    )
    assert await alone("PRODUCE|orders k:two") == (
        "ERR|NOT_LEADER|NOT_LEADER_OR_FOLLOWER: This broker does not lead orders-0; no broker does now."
    )
    assert await alone("SET_PARTITION_ROLE|orders 0 leader") == "OK|topic=orders partition=0 role=leader hw=1"
    assert await alone("PRODUCE|orders k:two") == "OK|partition=0 offset=1 hw=2"
    for args in ("nowhere 0 leader", "orders 7 leader"):
        assert (await alone(f"SET_PARTITION_ROLE|{args}")).startswith(
            "ERR|BAD_REQUEST|UNKNOWN_TOPIC_OR_PARTITION: "
        )
