"""What a Kafka 4.1 with StandardAuthorizer denies and allows, asked of a broker of ours, row after row.

The rows are in the order in which Kafka was asked; between them rules are created and deleted, as there. Equal means
equal in every field. `DIFFERENT` are the rows in which we differ, with the reason; what differs from run to run by
nature, and the words of messages that deny nothing, are put aside in `comparable`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.listeners.connection import RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.codec import decode_response
from core.protocol.header import decode_response_header
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.security.acl import AclFilter
from core.security.principal import ANONYMOUS, Principal
from core.types import FileSlice
from tests.core.listeners.kafka.conftest import Client, produce_request
from tests.golden.traffic import golden_file

# Of the recording: the id of the topic, the cluster's, and the port of the broker.
TOPIC_ID = UUID("c21cb56a-af33-405e-b36f-69c022b88ee5")
CLUSTER_ID = "c2x1aWNlLXRlc3RzLXBlZQ"
PORT = 39779
RECORDED_MS = 1_795_354_000_000
AUTHORIZATION = (29, 30, 31, 53)


def recorded() -> list[dict[str, Any]]:
    """The rows after the logins, which are of another test."""
    rows = json.loads(golden_file("kafka-4.1-acls.json").read_text())
    return [row for row in rows if not row["case"].startswith("login")]


def comparable(value: Any) -> Any:
    """An answer without what differs by nature, and without messages that deny nothing."""
    if isinstance(value, FileSlice):
        return value.read()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value)
    if isinstance(value, list):
        return [comparable(one) for one in value if not getattr(one, "is_internal", False)]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: comparable(getattr(value, name)) for name in value.__struct_fields__}
    if fields.get("error_code") not in AUTHORIZATION:
        fields.pop("error_message", None)
    elif str(fields.get("error_message")).startswith("Request "):
        # The dump of an object of Kafka, in the place of a sentence.
        fields["error_message"] = "Cluster authorization failed."
    if fields.get("name") == "not-yet":
        fields.pop("topic_id")
    for name in ("acls", "matching_acls", "resources"):
        if name in fields:
            fields[name].sort(key=repr)
    for name in ("log_dir", "total_bytes", "usable_bytes", "partition_size", "producer_id"):
        fields.pop(name, None)
    return fields


class Replay:
    """Two connections to one broker of ours: alice's, and that of the super user."""

    def __init__(self, broker: Broker) -> None:
        self.listener = KafkaListener(broker, HANDLERS)
        self.listener.bound(Endpoint("kafka", "127.0.0.1", PORT))
        self.clients = {}
        for name in ("alice", None):
            client = self.clients[name] = Client(self.listener)
            client.session.act_as(Principal("User", name) if name else ANONYMOUS)
        self.topic_id = TOPIC_ID

    async def prepare(self) -> None:
        """Make the topic and the transactional id that the recording has from the beginning."""
        await self.listener.broker.transactions.init("payer", 60_000)
        await self.clients[None].create("secret")
        hidden = build_batch([NewRecord(None, b"hidden", timestamp=RECORDED_MS)], now_ms=RECORDED_MS)
        await self.clients[None].ask(0, 9, produce_request("secret", bytes(hidden)))
        self.topic_id = self.listener.broker.topics.get("secret").topic_id

    async def forget(self) -> None:
        """Take back the rules of a step, and what it has made, as the recording did without keeping the rows."""
        broker = self.listener.broker
        await broker.acls.delete([AclFilter()])
        if any(topic.name == "not-yet" for topic in broker.topics.list()):
            await broker.topics.delete("not-yet")

    async def ask(self, row: dict[str, Any]) -> bytes | None:
        """The answer to a row, with Kafka's id of the topic."""
        frame = bytes.fromhex(row["request"])[4:].replace(TOPIC_ID.bytes, self.topic_id.bytes)
        try:
            answer = await self.clients[row.get("user")].raw(frame)
        except RefusedError:
            return None
        while self.listener.tasks:
            await asyncio.gather(*self.listener.tasks)
        return answer and answer.replace(self.topic_id.bytes, TOPIC_ID.bytes)


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Replay]:
    config = Config(
        data_dir=tmp_path, broker_id=1, authorizer=True, super_users=("User:ANONYMOUS", "User:admin"),
        group_initial_rebalance_delay_ms=0,
    )  # fmt: skip
    broker = Broker(config, ManualClock(RECORDED_MS))
    await broker.open()
    broker.cluster_id = CLUSTER_ID
    made = Replay(broker)
    await made.prepare()
    yield made
    await broker.close()


def decoded(row: dict[str, Any], answer: bytes) -> Any:
    key, version = row["api_key"], row["version"]
    _, position = decode_response_header(key, version, answer)
    return comparable(decode_response(key, version, answer, position))


# The rows in which we answer otherwise, and why.
NOT_KAFKAS_BUG = "Kafka answers with UNKNOWN_SERVER_ERROR (−1), we with INVALID_REQUEST and a sentence"
DIFFERENT = {
    "denied: produce v0": "Kafka 4 does not serve version 0",
    "denied: transactional produce v0": "Kafka 4 does not serve version 0",
    "denied: join v0": "the generation of a refusal is 0, as of the brokers that had no newer version",
    "denied: scram users v0": "Kafka never answers; we answer CLUSTER_AUTHORIZATION_FAILED",
    "with deny wins: metadata, creation v13": "the creation begins, which is LEADER_NOT_AVAILABLE here",
    "create: any operation v3": NOT_KAFKAS_BUG,
    "create: any resource v3": NOT_KAFKAS_BUG,
    "create: any permission v3": NOT_KAFKAS_BUG,
    "create: match pattern v3": NOT_KAFKAS_BUG,
    "create: any pattern v3": NOT_KAFKAS_BUG,
}
# AddPartitionsToTxn from version 4 on is for brokers that ask each other.
NOT_SERVED = {(24, 5)}


async def test_each_recorded_row_is_answered_as_kafka_did(replay: Replay) -> None:
    differing: dict[str, tuple[Any, Any]] = {}
    compared = 0
    not_served = set()
    for row in recorded():
        handler = HANDLERS.get(row["api_key"])
        name = f"{row['case']} v{row['version']}"
        if row["case"].startswith("allow ") or name == "create several v1":
            await replay.forget()
        if handler is None or not handler.serves(row["version"]):
            not_served.add((row["api_key"], row["version"]))
            continue
        compared += 1
        answer = await replay.ask(row)
        ours = None if answer is None else decoded(row, answer)
        theirs = decoded(row, bytes.fromhex(row["response"])[4:]) if "response" in row else None
        if ours != theirs:
            differing[name] = (theirs, ours)
    assert differing.keys() == DIFFERENT.keys(), differing
    assert not_served == NOT_SERVED
    assert compared == 245


def test_each_api_that_needs_a_right_has_a_recorded_denial() -> None:
    """`SINGLE` are the APIs without one in the recording, which `test_rights.py` of the listener tries."""
    denied = {row["api_key"] for row in recorded() if row["case"].startswith("denied: ")}
    needing = {key for key, handler in HANDLERS.items() if handler.needs}
    assert needing - denied == SINGLE
    assert {key for key, handler in HANDLERS.items() if not handler.needs} == {17, 18, 36, 60}


# DescribeQuorum, UpdateFeatures, AlterUserScramCredentials, and those of share groups.
SINGLE = {55, 57, 51, *range(76, 80), 90, 91, 92}
