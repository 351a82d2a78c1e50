"""Which logs are seen by Kafka 0.7: their views, made when somebody asks or the log changes.

Logs that no 0.7 client has touched cost one look for a file when segments are removed or compacted, and the modules
behind are not even loaded.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.log.files import FilePool

if TYPE_CHECKING:
    from core.kafka07.carry import Carrier
    from core.kafka07.view import AddressView
    from core.log.log import Log
    from core.log.segment import Segment

logger = logging.getLogger(__name__)

# The file that says that a partition has addresses; `core.kafka07.bases` writes it.
LEGACY_ADDRESSES = "legacy-addresses"


class LegacyViews:
    """The views of all open logs."""

    __slots__ = ("_held", "_max_bytes", "_pool", "_views")

    def __init__(self, pool: FilePool, max_bytes: int) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._views: dict[Log, dict[int, AddressView]] = {}
        # Logs in which a compacted segment is taking its place.
        self._held: set[Log] = set()

    def of(self, log: Log, magic: int) -> AddressView:
        """The view of a log in one magic. Raises OSError: BlockingIOError for some milliseconds of a compaction."""
        from core.kafka07.view import AddressView

        view = self._views.get(log, {}).get(magic)
        if view is None:
            if log in self._held:
                raise BlockingIOError(errno.EAGAIN, "a compaction is about to end")
            view = AddressView(self._pool, log, magic, self._max_bytes)
            self._views.setdefault(log, {})[magic] = view
        return view

    def existing(self, log: Log) -> list[AddressView]:
        """The views that a log has, open or on the disk. Raises OSError."""
        path = f"{log.directory}/{LEGACY_ADDRESSES}"
        if log not in self._views and not os.path.exists(path):  # noqa: PTH110 (see core.log.files)
            return []
        from core.kafka07.bases import known_magics

        return [self.of(log, magic) for magic in known_magics(log.directory, self._views.get(log, ()))]

    def before_removal(self, log: Log, gone: Sequence[Segment]) -> None:
        """The oldest segments of a log, not all of them, are about to be removed. Raises OSError."""
        first = log.segments.all[len(gone)]
        for view in self.existing(log):
            view.before_removal(gone, first)

    def carriers(self, log: Log, group: Sequence[Segment]) -> list[Carrier] | None:
        """What carries the addresses of a log over the compaction of a group of its segments; one for each view.

        None if a view does not cover the group (yet). Raises OSError.
        """
        views = self.existing(log)
        if not views:
            return []
        from core.kafka07.carry import Carrier

        if not all(view.covers(segment) for view in views for segment in group):
            return None
        return [Carrier(self._pool, view, group, self._max_bytes) for view in views]

    def hold(self, log: Log, carriers: Sequence[Carrier]) -> bool:
        """Let no new view of the log come up until `release`: from here on the compacted segment counts.

        False if one has come up since `carriers`, or has changed: its addresses would move. Raises OSError.
        """
        if [carrier.view for carrier in carriers if carrier.holds] != self.existing(log):
            return False
        self._held.add(log)
        return True

    def release(self, log: Log) -> None:
        """The compacted segment is in its place, or will not be."""
        self._held.discard(log)

    def truncated(self, log: Log) -> None:
        """A log was cut at its new end. Entries that cannot be cut off are found wrong when they are read."""
        try:
            for view in self.existing(log):
                view.truncated(log.offsets.log_end_offset)
        except OSError as error:
            logger.warning("%s: its 0.7 addresses could not be cut: %s", log.tp, error.strerror)

    def forget(self, log: Log) -> None:
        """The log is closed."""
        self._held.discard(log)
        for view in self._views.pop(log, {}).values():
            view.close()
