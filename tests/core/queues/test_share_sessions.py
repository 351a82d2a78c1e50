"""core.queues.share_sessions: epochs, connections, limits."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.errors import BrokerError, ErrorCode
from core.queues.share_sessions import SharedPartition, Sharer, ShareSessions

A, B = Sharer("g", "a"), Sharer("g", "b")
ONE, TWO, THREE = (SharedPartition(UUID(int=1), partition) for partition in (1, 2, 3))


def refused(code: ErrorCode) -> pytest.RaisesExc[BrokerError]:
    return pytest.RaisesExc(BrokerError, check=lambda error: error.code is code)


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(2)


def test_each_request_has_the_next_epoch(sessions: ShareSessions) -> None:
    opened = sessions.open(A, 7)
    for epoch in (1, 2, 3):
        assert sessions.resume(A, 7, epoch) is opened
    for wrong in (3, 5, 2**31 - 1):
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            sessions.resume(A, 7, wrong)
    assert sessions.resume(A, 7, 4) is opened


def test_after_the_last_epoch_comes_one(sessions: ShareSessions) -> None:
    opened = sessions.open(A, 7)
    opened.epoch = 2**31 - 1
    sessions.resume(A, 7, 2**31 - 1)
    assert sessions.resume(A, 7, 1) is opened


def test_a_session_belongs_to_its_member_and_its_connection(sessions: ShareSessions) -> None:
    sessions.open(A, 7)
    for sharer, connection in ((B, 7), (A, 8), (Sharer("h", "a"), 7)):
        with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            sessions.resume(sharer, connection, 1)
        with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            sessions.close(sharer, connection)


def test_a_member_that_opens_again_replaces_its_session(sessions: ShareSessions) -> None:
    first = sessions.open(A, 7)
    first.update([ONE], [])
    second = sessions.open(A, 8)
    assert not second.partitions
    assert len(sessions) == 1
    assert sessions.disconnected(7) == []
    assert sessions.disconnected(8) == [A]
    assert len(sessions) == 0


def test_a_connection_ends_all_of_its_sessions(sessions: ShareSessions) -> None:
    sessions.open(A, 7)
    sessions.open(B, 7)
    assert sessions.disconnected(7) == [A, B]
    assert sessions.disconnected(7) == []
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.resume(A, 7, 1)


def test_too_many_sessions_are_refused_and_a_closed_one_makes_place(sessions: ShareSessions) -> None:
    sessions.open(A, 7)
    sessions.open(B, 8)
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.open(Sharer("h", "c"), 9)
    sessions.open(B, 9)
    assert sessions.close(A, 7).sharer == A
    sessions.open(Sharer("h", "c"), 9)
    assert sessions.disconnected(9) == [B, Sharer("h", "c")]


def test_partitions_are_added_forgotten_and_take_turns(sessions: ShareSessions) -> None:
    session = sessions.open(A, 7)
    session.update([ONE, TWO, THREE], [])
    session.update([ONE], [TWO])
    assert list(session.partitions) == [ONE, THREE]
    session.served([ONE, TWO])
    assert list(session.partitions) == [THREE, ONE]


def test_a_session_has_a_limit_of_partitions(sessions: ShareSessions) -> None:
    session = sessions.open(A, 7)
    with refused(ErrorCode.INVALID_REQUEST):
        session.update((SharedPartition(UUID(int=1), number) for number in range(100_001)), [])
