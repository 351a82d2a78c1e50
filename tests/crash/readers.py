"""Clients that read in groups while the broker is killed: librdkafka, managed consumers, members made by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.broker_process import BrokerProcess
from tests.crash.history import History, Partition, Session

POLL_SECONDS = 0.2
Reader = Callable[[BrokerProcess, History, str], None]
# What the groups read; members by hand only commit.
READ_BY = {
    "librdkafka": ["idempotent", "rest", "keyed"],
    "assigned": ["idempotent", "text"],
    "managed": ["text", "keyed"],
}
# What members of the classic protocol set themselves; for the others the broker has it (KIP-848).
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}


def librdkafka(broker: BrokerProcess, history: History, name: str) -> None:
    """A member of the group `librdkafka` that commits what it has polled, now and then."""
    _consume(broker, history, name, "librdkafka", CLASSIC)


def assigned(broker: BrokerProcess, history: History, name: str) -> None:
    """The same in a group to whose members the broker assigns (KIP-848)."""
    _consume(broker, history, name, "assigned", {"group.protocol": "consumer"})


def _consume(
    broker: BrokerProcess, history: History, name: str, group: str, settings: dict[str, Any]
) -> None:
    sessions: dict[Partition, Session] = {}

    def given(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            sessions[one.topic, one.partition] = history.begin(name, group, (one.topic, one.partition))

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            sessions.pop((one.topic, one.partition), None)

    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(READ_BY[group], on_assign=given, on_revoke=revoked)
    behind: dict[Partition, int] = {}
    polls = 0
    while not history.stop.is_set():
        for message in consumer.consume(200, POLL_SECONDS):
            place = (message.topic(), message.partition())
            if message.error() is None and place in sessions:
                history.poll(sessions[place], message.offset(), message.value())
                behind[place] = message.offset() + 1
        polls += 1
        if polls % 5 == 0:
            _commit(consumer, history, group, {p: at for p, at in behind.items() if p in sessions})
            behind.clear()
    consumer.close()


def _commit(consumer: Consumer, history: History, group: str, behind: dict[Partition, int]) -> None:
    for place, offset in behind.items():
        history.try_commit(group, place, offset)
    try:
        done = consumer.commit(
            offsets=[TopicPartition(*place, offset) for place, offset in behind.items()], asynchronous=False
        )
    except KafkaException:
        return  # not known
    for one in done or []:
        if one.error is None:
            history.commit(group, (one.topic, one.partition), one.offset)


class _Http:
    """Requests that may find no broker; None then."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = httpx.Client(base_url=f"{broker.http}/api/v1", timeout=20, trust_env=False)

    def __enter__(self) -> _Http:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response | None:
        """The answer, unless the broker is dead, starting or stopping."""
        try:
            answer = self._client.post(path, json=body)
        except httpx.HTTPError:
            time.sleep(0.02)
            return None
        return None if answer.status_code == 503 else answer


def managed(broker: BrokerProcess, history: History, name: str) -> None:
    """A managed consumer of the group `managed`: its batches follow each other, and what is acknowledged is over."""
    with _Http(broker) as http:
        _poll_managed(http, history, name)


def _poll_managed(http: _Http, history: History, name: str) -> None:
    group = "managed"
    path = f"/groups/{group}/consumers"
    while not history.stop.is_set():
        made = http.post(path, {"name": name, "topics": READ_BY[group], "start": "earliest"})
        if made is not None and made.status_code in (201, 409):
            break
    while not history.stop.is_set():
        answer = http.post(f"{path}/{name}:poll", {"limit": 200, "wait_ms": 200})
        if answer is None:
            continue
        if answer.status_code != 200:
            history.fail(f"a managed poll: {answer.status_code} {answer.text}")
            return
        batch = answer.json()
        if batch["records"]:
            _take(http, history, group, name, batch)


def _take(http: _Http, history: History, group: str, name: str, batch: dict[str, Any]) -> None:
    """Note a batch, each partition of it as an assignment of its own, and acknowledge it."""
    sessions: dict[Partition, Session] = {}
    for record in batch["records"]:
        place = (record["topic"], record["partition"])
        if place not in sessions:
            sessions[place] = history.begin(name, group, place)
        history.poll(sessions[place], record["offset"], record["value"].encode())
    ends = {place: session.polled[-1][0] + 1 for place, session in sessions.items()}
    for place, end in ends.items():
        history.try_commit(group, place, end)
    answer = http.post(f"/groups/{group}/consumers/{name}:ack", {"ack": batch["ack"]})
    if answer is not None and answer.status_code == 200:
        for one in answer.json()["acknowledged"]:
            place = (one["topic"], one["partition"])
            history.commit(group, place, ends[place])


def by_hand(broker: BrokerProcess, history: History, name: str) -> None:
    """A member that joins, syncs and heartbeats by single requests, as a shell script would."""
    with _Http(broker) as http:
        _join_by_hand(http, history)


def _join_by_hand(http: _Http, history: History) -> None:
    group, member = "by-hand", ""
    while not history.stop.is_set():
        body: dict[str, Any] = {"topics": ["plain"], "session_timeout_ms": 6000, "wait_ms": 3000}
        answer = http.post(f"/groups/{group}/members", body | ({"member_id": member} if member else {}))
        if answer is None or answer.status_code not in (200, 202):
            member = "" if answer is not None and answer.status_code == 404 else member
            continue
        joined = answer.json()
        member = joined["member_id"]
        if joined["joined"]:
            member = _serve(http, history, group, member, joined["generation_id"])


def _serve(http: _Http, history: History, group: str, member: str, generation: int) -> str:
    """One generation of a member; gives its id for the next, or nothing if the group has forgotten it."""
    path, body = f"/groups/{group}/members/{member}", {"generation_id": generation}
    while not history.stop.is_set():
        answer = http.post(f"{path}:sync", body)
        if answer is None:
            continue
        if answer.status_code == 200 and answer.json()["synced"]:
            break
        if answer.status_code not in (200, 202):
            return "" if answer.status_code == 404 else member
    else:
        return member
    for one in answer.json()["partitions"]:
        history.own(group, generation, (one["topic"], one["partition"]), member)
    while not history.stop.is_set():
        answer = http.post(f"{path}:heartbeat", body)
        if answer is not None and answer.status_code != 204:
            return "" if answer.status_code == 404 else member
        time.sleep(0.1)
    return member


READERS: tuple[tuple[str, Reader], ...] = (
    ("first-librdkafka", librdkafka),
    ("second-librdkafka", librdkafka),
    ("first-assigned", assigned),
    ("second-assigned", assigned),
    ("first-managed", managed),
    ("second-managed", managed),
    ("first-by-hand", by_hand),
    ("second-by-hand", by_hand),
)
