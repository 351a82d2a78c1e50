"""Which broker keeps topics, groups and offsets: this one, unless it has peers and another one leads the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    # Loaded by a broker with peers alone.
    from core.replication.metadata_log import MetadataLog


class Controller:
    """The broker that keeps topics, groups and offsets. `metadata` is None on a broker without peers."""

    def __init__(self, broker_id: int, metadata: MetadataLog | None) -> None:
        self._broker_id = broker_id
        self._metadata = metadata

    @property
    def leader(self) -> int:
        """The id of the broker that keeps topics, groups and offsets; −1 if none is known."""
        return self._broker_id if self._metadata is None else self._metadata.leader

    @property
    def serving(self) -> bool:
        """Whether this broker keeps topics, groups and offsets."""
        return self._metadata is None or self._metadata.serving >= 0

    def require(self) -> None:
        """Raise NOT_CONTROLLER unless this broker keeps topics, groups and offsets."""
        if not self.serving:
            leader = self.leader
            who = f"broker {leader} does" if leader not in (-1, self._broker_id) else "no broker does now"
            raise BrokerError(
                ErrorCode.NOT_CONTROLLER,
                f"This broker does not keep topics, groups and offsets; {who}.",
                leader=leader,
            )
