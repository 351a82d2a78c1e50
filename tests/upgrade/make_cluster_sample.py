"""Writes the data directory of the first of two brokers, with every kind of change in its metadata log.

    python -m tests.upgrade.make_cluster_sample TARGET.tar.gz

It was run with the last release that wrote the text of statements into the metadata log. It is run in one process:
what a later release can do beyond that is added here, so that a new sample has it.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import tempfile
from pathlib import Path

from core.broker.broker import Broker
from core.metadata.idempotency import bind, put_answer, put_places, remove, remove_oldest
from core.metadata.topics import forget_deletions, note_deletion
from core.records.record import NewRecord
from core.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from core.vocabulary.consumers import Subscription
from core.vocabulary.groups import Commit, CommitRequest
from tests.core.replication.brokers import Brokers

ALICE = Acl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)  # fmt: skip
# Changes that no call of a broker makes at will: rows of tables, under statements of their own.
_BINDS = [bytes([number]) * 32 for number in range(3)]
_NOW_MS = 1_700_000_000_000


async def change(broker: Broker) -> None:
    """Make changes of every kind, through the broker that keeps the metadata."""
    await broker.topics.create("orders", partitions=12, replication_factor=2)
    await broker.topics.create("gone", replication_factor=2)
    await broker.topics.alter_configs("orders", {"retention.ms": "86400000"})
    await broker.topics.delete("gone")
    await broker.broker_configs.alter("", {"log.retention.ms": "888"})
    await broker.broker_configs.alter("2", {"log.segment.bytes": "5000"})
    await broker.broker_configs.alter("", {"log.retention.ms": None})
    await broker.users.create("alice", "secret of alice")
    await broker.users.create("bob", "secret of bob")
    await broker.acls.create([ALICE, ALICE._replace(principal="User:bob")])
    await broker.acls.delete([AclFilter(principal="User:bob")])
    info, _ = await broker.tokens.create("alice", "kept", None, expires=False)
    info, _ = await broker.tokens.create("alice", "deleted", None, expires=False)
    await broker.tokens.delete(info.token_id)
    await broker.users.delete("bob")
    for group in ("readers", "gone"):
        await broker.groups.commit(
            group, CommitRequest([Commit("orders", partition, 0) for partition in range(12)])
        )
    await broker.groups.delete("gone")
    await broker.records.produce("orders", [NewRecord(value=b"one")], partition=0)
    await broker.groups.commit("readers", CommitRequest([Commit("orders", 0, 1)]))
    for name in ("one", "two"):
        await broker.consumers.create("watchers", name, subscription=Subscription(topics=("orders",)))
    batch = await broker.consumers.poll("watchers", "one", limit=5, max_bytes=1_000, wait_ms=6_000)
    assert len(batch.records) <= 1
    await broker.consumers.delete("watchers", "two")
    store = broker.store
    for digest in _BINDS:
        await store.read(bind(digest, b"f" * 32, b"", now_ms=_NOW_MS, expired_ms=0))
    for digest in _BINDS:
        await store.submit([put_places([(digest, b"")]), put_answer(digest, b"answer")])
    await store.submit([remove(_BINDS[1])])
    await store.read(remove_oldest(before_ms=_NOW_MS + 1, expired_ms=_NOW_MS, limit=1))
    topic_id = broker.topics.get("orders").topic_id
    await store.submit([note_deletion(topic_id)])
    await store.submit([forget_deletions([topic_id])])


async def write(directory: Path) -> None:
    """Run two brokers, change, stop them."""
    async with Brokers(directory, super_users=("User:ANONYMOUS",)) as two:
        await change(await two.serving(1))


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory)))
        data = Path(directory) / "1"
        (data / ".lock").unlink(missing_ok=True)
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            archive.add(data, arcname=".")


if __name__ == "__main__":
    main()
