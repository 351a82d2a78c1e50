"""core.listeners.kafka.fetch_session: KIP-227's table of session ids and epochs, news, turns, limits."""

from __future__ import annotations

import pytest

from core.clock import ManualClock
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.fetch_session import FetchSession, FetchSessions
from core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from core.security.principal import Principal


def request(
    session_id: int, epoch: int, partitions: dict[int, int] | None = None, forget: tuple[int, ...] = ()
) -> FetchRequest:
    topics = [
        FetchTopic("t", partitions=[FetchPartition(p, fetch_offset=o) for p, o in (partitions or {}).items()])
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=[ForgottenTopic("t", partitions=list(forget))] if forget else [],
    )


def offsets(session: FetchSession) -> dict[int, int]:
    return {partition: one.asked.fetch_offset for (_, partition), one in session.partitions.items()}


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(3, clock)


def test_a_request_without_a_session_leaves_none(sessions: FetchSessions) -> None:
    session = sessions.open(request(0, -1, {0: 5}), by_id=False)
    assert (session.id, session.incremental, offsets(session)) == (0, False, {0: 5})
    assert len(sessions) == 0


def test_a_session_remembers_adds_changes_and_forgets_partitions(sessions: FetchSessions) -> None:
    first = sessions.open(request(0, 0, {0: 5, 1: 6}), by_id=False)
    assert first.id > 0 and not first.incremental
    second = sessions.open(request(first.id, 1, {1: 7, 2: 0}, forget=(0,)), by_id=False)
    assert second is first and second.incremental
    assert offsets(second) == {1: 7, 2: 0}
    assert sessions.open(request(first.id, 2), by_id=False) is first


def test_an_unknown_session_and_a_wrong_epoch_are_told_apart(sessions: FetchSessions) -> None:
    session = sessions.open(request(0, 0, {0: 0}), by_id=False)
    with pytest.raises(BrokerError) as refused:
        sessions.open(request(session.id + 1, 1), by_id=False)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(BrokerError) as refused:
        sessions.open(request(session.id, 5), by_id=False)
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.open(request(session.id, 1), by_id=False) is session


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_it_names(sessions: FetchSessions, epoch: int) -> None:
    session = sessions.open(request(0, 0, {0: 0}), by_id=False)
    after = sessions.open(request(session.id, epoch, {1: 0}), by_id=False)
    assert (after.id > 0) == (epoch == 0) and offsets(after) == {1: 0}
    with pytest.raises(BrokerError):
        sessions.open(request(session.id, 1), by_id=False)


def test_epochs_wrap_to_one(sessions: FetchSessions) -> None:
    session = sessions.open(request(0, 0, {0: 0}), by_id=False)
    session.epoch = 2**31 - 1
    sessions.open(request(session.id, 2**31 - 1), by_id=False)
    assert session.epoch == 1


def test_in_a_full_table_a_client_gets_no_session_until_an_idle_one_ends(
    sessions: FetchSessions, clock: ManualClock
) -> None:
    ids = [sessions.open(request(0, 0, {0: 0}), by_id=False).id for _ in range(3)]
    assert sessions.open(request(0, 0, {0: 0}), by_id=False).id == 0
    clock.advance(60)
    sessions.open(request(ids[0], 1), by_id=False)
    clock.advance(61)
    assert sessions.open(request(0, 0, {0: 0}), by_id=False).id > 0
    with pytest.raises(BrokerError):
        sessions.open(request(ids[1], 1), by_id=False)
    sessions.open(request(ids[0], 2), by_id=False)


def test_only_changes_are_news(sessions: FetchSessions) -> None:
    one = sessions.open(request(0, 0, {0: 0}), by_id=False).partitions["t", 0]
    assert one.has_news(PartitionData(0, 0, 5, log_start_offset=0, records=b""))
    assert not one.has_news(PartitionData(0, 0, 5, log_start_offset=0, records=b""))
    assert one.has_news(PartitionData(0, 0, 6, log_start_offset=0, records=b""))
    assert one.has_news(PartitionData(0, 0, 6, log_start_offset=1, records=b""))
    assert one.has_news(PartitionData(0, 0, 6, log_start_offset=1, records=b"x"))
    assert one.has_news(PartitionData(0, 3, 6, log_start_offset=1, records=b""))
    assert one.has_news(PartitionData(0, 0, 6, log_start_offset=1, records=b""))
    assert not one.has_news(PartitionData(0, 0, 6, log_start_offset=1, records=b""))


def test_a_partition_that_was_served_moves_after_the_others(sessions: FetchSessions) -> None:
    session = sessions.open(request(0, 0, {0: 0, 1: 0, 2: 0}), by_id=False)
    session.served([("t", 0), ("t", 9)])
    assert [p for _, p in session.partitions] == [1, 2, 0]


def test_the_session_of_another_principal_is_not_known(sessions: FetchSessions) -> None:
    alice, bob = Principal(name="alice"), Principal(name="bob")
    session = sessions.open(request(0, 0, {0: 5}), False, alice)
    with pytest.raises(BrokerError) as refused:
        sessions.open(request(session.id, 1), False, bob)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Nor can it be ended.
    sessions.open(request(session.id, -1, {0: 5}), False, bob)
    assert sessions.open(request(session.id, 1), False, alice) is session
