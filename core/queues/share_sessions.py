"""Share sessions (KIP-932): a share consumer names its partitions once, later requests carry changes. Pure.

A session belongs to one member of one group and to one connection. States of a request, by its epoch:

    0     opens a session. One of the same member ends, on whichever connection it is; its locks stay with the member
    −1    ends the session, and what the member has acquired becomes available
    n     must be the next epoch: 1 after 0, 1 after 2³¹−1. INVALID_SHARE_SESSION_EPOCH if not

SHARE_SESSION_NOT_FOUND if there is none for this member on this connection. Nothing is dropped to make space: a
session has locks. If there are too many, a new one gets SHARE_SESSION_LIMIT_REACHED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode

OPENING, CLOSING = 0, -1
_MAX_EPOCH = 2**31 - 1
# Partitions of one session.
_MAX_PARTITIONS = 100_000


class Sharer(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SharedPartition(NamedTuple):
    """A partition of a session."""

    topic_id: UUID
    partition: int


class ShareSession:
    """One session: its partitions, in the order in which they are served."""

    __slots__ = ("connection", "epoch", "partitions", "sharer")

    def __init__(self, sharer: Sharer, connection: int) -> None:
        self.sharer = sharer
        self.connection = connection
        # The epoch of the next request.
        self.epoch = 1
        self.partitions: dict[SharedPartition, None] = {}

    def update(self, added: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        """Take over what a request adds and forgets. Raises INVALID_REQUEST for too many partitions."""
        for one in added:
            self.partitions.setdefault(one)
        for one in forgotten:
            self.partitions.pop(one, None)
        if len(self.partitions) > _MAX_PARTITIONS:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"A share session has at most {_MAX_PARTITIONS} partitions; read fewer topics with one consumer.",
            )

    def served(self, partitions: Iterable[SharedPartition]) -> None:
        """Move partitions that just gave records after the others, so that each has its turn."""
        for one in partitions:
            if one in self.partitions:
                del self.partitions[one]
                self.partitions[one] = None


class ShareSessions:
    """The share sessions of a broker, over all its listeners."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[Sharer, ShareSession] = {}
        self._by_connection: dict[int, dict[Sharer, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, sharer: Sharer, connection: int) -> ShareSession:
        """Return a new session; one of the same member ends. Raises SHARE_SESSION_LIMIT_REACHED."""
        self._drop(sharer)
        if len(self._sessions) >= self._limit:
            raise BrokerError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"{self._limit} share sessions are open; close other share consumers, and try again.",
            )
        session = self._sessions[sharer] = ShareSession(sharer, connection)
        self._by_connection.setdefault(connection, {})[sharer] = None
        return session

    def resume(self, sharer: Sharer, connection: int, epoch: int) -> ShareSession:
        """Return the session of a request with epoch `epoch`, which is not OPENING and not CLOSING.

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._of(sharer, connection)
        if epoch != session.epoch:
            raise BrokerError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session of member {sharer.member_id} expects epoch {session.epoch}, not {epoch}.",
            )
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def close(self, sharer: Sharer, connection: int) -> ShareSession:
        """End the session of a member and return it. The caller releases what the member has acquired.

        Raises SHARE_SESSION_NOT_FOUND.
        """
        session = self._of(sharer, connection)
        self._drop(sharer)
        return session

    def disconnected(self, connection: int) -> list[Sharer]:
        """End the sessions of a connection; return their members, whose records the caller releases."""
        ended = list(self._by_connection.pop(connection, ()))
        for sharer in ended:
            del self._sessions[sharer]
        return ended

    def _of(self, sharer: Sharer, connection: int) -> ShareSession:
        session = self._sessions.get(sharer)
        if session is None or session.connection != connection:
            raise BrokerError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"Member {sharer.member_id} of group {sharer.group_id} has no share session on this connection; open "
                "one with epoch 0.",
            )
        return session

    def _drop(self, sharer: Sharer) -> None:
        session = self._sessions.pop(sharer, None)
        if session is None:
            return
        of_connection = self._by_connection[session.connection]
        del of_connection[sharer]
        if not of_connection:
            del self._by_connection[session.connection]
