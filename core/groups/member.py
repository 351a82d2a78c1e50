"""One member of a classic group."""

from __future__ import annotations

from core.groups.effects import StoredMember
from core.vocabulary.groups import JoinedMember, JoinRequest, MemberView


class Member:
    """A member: its ids, its protocols, its assignment, and its waiting requests.

    `deadline` (monotonic seconds) is when the session expires. It does not count while a member that is not new waits
    for an answer, because then the broker makes it wait. `is_new` holds until the first join is answered. `id_told`:
    the client has got the member id.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "group_instance_id",
        "id_told",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(self, member_id: str, request: JoinRequest, deadline: float) -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.assignment = b""
        self.join_waiter: object | None = None
        self.sync_waiter: object | None = None
        self.is_new = True
        self.id_told = False
        self.deadline = deadline
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        """Set protocols and timeouts to those of a join."""
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        # In seconds, so that a heartbeat is one addition.
        self.session_timeout = request.session_timeout_ms / 1000

    @property
    def is_waiting(self) -> bool:
        """Return whether a request of this member waits for its answer."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def can_expire(self) -> bool:
        """Return whether the deadline counts now."""
        return self.is_new or not self.is_waiting

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def joined(self, protocol: str | None) -> JoinedMember:
        """Return the member as the leader sees it."""
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol))

    def view(self, protocol: str | None) -> MemberView:
        """Return the member as DescribeGroups shows it; without metadata and assignment if `protocol` is None."""
        shown = protocol is not None
        return MemberView(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol) if shown else b"",
            self.assignment if shown else b"",
        )

    def stored(self, group_id: str) -> StoredMember:
        """Return the member's row."""
        return StoredMember(
            group_id,
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )

    @classmethod
    def restored(cls, stored: StoredMember, protocol_type: str, now: float) -> Member:
        """Restore a member from its row, with a whole session."""
        request = JoinRequest(
            stored.member_id,
            protocol_type,
            stored.protocols,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.client_id,
            stored.client_host,
            stored.group_instance_id,
        )
        member = cls(stored.member_id, request, now + stored.session_timeout_ms / 1000)
        member.assignment = stored.assignment
        member.is_new = False
        member.id_told = True
        return member
