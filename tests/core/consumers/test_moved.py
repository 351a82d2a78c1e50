"""Managed consumers whose state comes from another cluster, as `sluice move consumers` leaves it."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from core.errors import BrokerError
from tests.core.consumers.consumer_world import G, World, offsets

_NOT_A_MEMBER = (
    "UPDATE consumers SET member_id = '', generation = -1",
    "DELETE FROM groups",
    "DELETE FROM group_members",
)


async def moved(w: World) -> None:
    """Restart as a gateway whose group knows nothing of the members."""

    def effect(connection: Connection) -> None:
        for statement in _NOT_A_MEMBER:
            connection.exec_driver_sql(statement)

    await w.broker.store.submit([effect])
    await w.kill()


async def commit_positions(w: World) -> None:
    """Commit the positions for the group, as `sluice move groups --data-dir` does where it has no offset."""

    def effect(connection: Connection) -> None:
        connection.exec_driver_sql(
            "INSERT OR IGNORE INTO committed_offsets"
            " SELECT group_id, topic, partition, position, -1, '', 0, -1 FROM consumer_positions"
        )

    await w.broker.store.submit([effect])


async def test_a_moved_consumer_keeps_its_outstanding_batch_and_its_token(w: World) -> None:
    await w.topic(partitions=2, records=5)
    await w.create("a")
    first = await w.poll("a", limit=2)
    second = await w.poll("a", limit=6, ack=first.token)
    await commit_positions(w)
    await moved(w)
    again = await w.poll("a")
    assert (again.token, offsets(again), again.redelivered) == (second.token, offsets(second), True)
    done = await w.consumers.ack(G, "a", second.token)
    assert {one.partition for one in done.committed} == {one.partition for one in second.ranges}
    assert offsets(await w.poll("a", ack=second.token)) != offsets(second)


async def test_a_batch_is_dropped_if_the_group_has_committed_something_else(w: World) -> None:
    await w.topic(records=5)
    await w.create("a")
    batch = await w.poll("a", limit=2)
    await commit_positions(w)
    assert batch.token is not None

    def effect(connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE committed_offsets SET committed_offset = 4")

    await w.broker.store.submit([effect])
    await moved(w)
    assert offsets(await w.poll("a")) == {0: [4]}
    with pytest.raises(BrokerError):
        await w.poll("a", ack="other.1")
