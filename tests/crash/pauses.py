"""A broker that stands still, and a consumer that does (R8).

A writer and a group of two real clients are at work. First the broker is stopped (SIGSTOP) for longer than the
sessions of its members, then one of the members is. Promised: what was acknowledged is read by a member, each pause
costs one rebalance at most, positions never decrease, and a member that was away for too long is told so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.members.member import Member
from tests.clients.members.python_member import SESSION_MS
from tests.clients.wire import Wire, batch

TOPIC, GROUP, PARTITIONS = "work", "workers", 4
KINDS = ("confluent-kafka", "aiokafka")
ENVIRONMENT = {
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "500",
}
SESSION_SECONDS = SESSION_MS / 1000
WAIT_SECONDS = 60.0


class Writer(threading.Thread):
    """Writes numbered values, one after the other; `answered` are those that it was promised."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(name="writer")
        self._broker = broker
        self.stopping = threading.Event()
        self.answered: list[str] = []

    def run(self) -> None:
        """Write until told to stop."""
        with Wire(self._broker.kafka_address, timeout=120) as wire:
            number = 0
            while not self.stopping.wait(0.02):
                value = f"{number}"
                answer = wire.produce(TOPIC, batch([value.encode()]), partition=number % PARTITIONS)
                if answer.error_code == 0:
                    self.answered.append(value)
                number += 1


def until(what: Callable[[], bool], why: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def generation(broker: BrokerProcess) -> int:
    """The generation of the group."""
    with httpx.Client(base_url=broker.http, timeout=WAIT_SECONDS, trust_env=False) as http:
        return int(http.get(f"/api/v1/groups/{GROUP}").raise_for_status().json()["generation_id"])


def shared(members: list[Member]) -> bool:
    """Whether these members own each partition once."""
    return sorted(p for member in members for p in member.assigned or []) == list(range(PARTITIONS))


def all_read(members: list[Member], values: list[str]) -> bool:
    """Whether the members have read all of these."""
    return set(values) <= {value for member in members for _, _, value in list(member.reads)}


def run(directory: Path, seconds: float) -> str:
    """Run both pauses, of this many seconds; return the outcome. Raises AssertionError if a promise is broken."""
    broker = BrokerProcess(directory / "data", environment=ENVIRONMENT).start()
    writer, members = Writer(broker), list[Member]()
    try:
        with Wire(broker.kafka_address) as wire:
            wire.create_topic(TOPIC, partitions=PARTITIONS)
        writer.start()
        members += [Member(kind, broker, GROUP, TOPIC) for kind in KINDS]
        until(lambda: shared(members) and all(member.reads for member in members), "no group came about")
        time.sleep(1)
        first = generation(broker)
        broker.pause()
        time.sleep(seconds)
        broker.resume()
        seen = len(writer.answered)
        until(lambda: len(writer.answered) > seen + 20, "the writer does not continue")
        until(
            lambda: shared(members) and all_read(members, writer.answered[: seen + 20]), "no member reads on"
        )
        second = generation(broker)
        assert second - first <= 1, f"{second - first} rebalances after one pause of the broker"
        third = _pause_member(broker, members, seconds)
        assert third - second <= 2, f"{third - second} rebalances: one for going, one for coming back"
        _fenced(broker)
        writer.stopping.set()
        writer.join(WAIT_SECONDS)
        until(lambda: all_read(members, writer.answered), "acknowledged, and not read")
        _positions_rise(members)
        assert "Traceback" not in broker.read_log(), broker.read_log()[-3000:]
    finally:
        writer.stopping.set()
        for member in members:
            member.resume()
            member.kill()
        broker.kill()
    return (
        f"pauses of {seconds:g} s, sessions of {SESSION_SECONDS:g} s: {len(writer.answered)} values, none lost; "
        f"{second - first} rebalances for the broker's pause, {third - second} for the member's"
    )


def _pause_member(broker: BrokerProcess, members: list[Member], seconds: float) -> int:
    """One member stands still for longer than its session; the generation once it is back."""
    away, other = members
    away.pause()
    until(lambda: sorted(other.assigned or []) == list(range(PARTITIONS)), "no member takes over")
    time.sleep(max(0.0, seconds - SESSION_SECONDS))
    heard = len(away.events)
    away.resume()
    until(lambda: len(other.assigned or []) < PARTITIONS and shared(members), "it does not come back")
    said = [event for _, event in away.events[heard:]]
    assert any("assigned" in event or "refused" in event for event in said), said
    time.sleep(1)
    return generation(broker)


def _fenced(broker: BrokerProcess) -> None:
    """A member by hand that was silent for longer than its session gets UNKNOWN_MEMBER_ID at each request."""
    base = f"{broker.http}/api/v1/groups/alone"
    with httpx.Client(base_url=base, timeout=WAIT_SECONDS, trust_env=False) as http:
        asked = {"topics": [TOPIC], "session_timeout_ms": 1000, "wait_ms": 10_000}
        joined = http.post("/members", json=asked).raise_for_status().json()
        time.sleep(2)
        ours = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        offset = {"topic": TOPIC, "partition": 0, "next_offset": 1}
        answers = (
            http.post(f"/members/{joined['member_id']}:heartbeat", json={"generation_id": 1}),
            http.patch("/offsets", json={"offsets": [offset], **ours}),
        )
    told = [answer.json().get("kafka_error") for answer in answers]
    assert told == ["UNKNOWN_MEMBER_ID"] * 2, [answer.text for answer in answers]


def _positions_rise(members: list[Member]) -> None:
    """What a member commits of a partition never decreases within one assignment."""
    for member in members:
        last: dict[str, int] = {}
        for _, event in member.events:
            if "assigned" in event:
                last = {}
            for partition, offset in event.get("committed", {}).items():
                assert offset >= last.get(partition, 0), (member.kind, partition, offset, last)
                last[partition] = offset
