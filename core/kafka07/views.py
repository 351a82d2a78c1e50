"""The 0.7 views of all open logs: made when a client asks or the log changes, and kept right by the log's events.

The server subscribes one `Kafka07Views` whether it has a 0.7 listener or not: addresses that were given out once must
hold. A log that no 0.7 client has touched costs one look for a file when a segment is removed or compacted, and the
modules of a single view (`core.kafka07.view`, `core.kafka07.carry`) are not even loaded.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from core.kafka07.bases import ADDRESSES_FILE, bases_path, known_magics
from core.kafka07.index import SIDECAR_SUFFIXES
from core.log.events import WatchedLog
from core.log.files import FilePool
from core.log.flush import Chore
from core.log.segment import Segment
from core.records.header import BatchHeader
from core.records.record import Record

if TYPE_CHECKING:
    from core.kafka07.carry import Carrier
    from core.kafka07.view import AddressView

logger = logging.getLogger(__name__)


class Kafka07Views:
    """The views of all open logs; a `core.log.events.LogSubscriber`.

    `max_bytes` bounds what one batch may decompress to, `slice_bytes` the bytes of log that are measured at once.
    """

    sidecar_suffixes: Sequence[str] = SIDECAR_SUFFIXES
    lasting_files: Sequence[str] = (ADDRESSES_FILE,)

    def __init__(self, pool: FilePool, *, max_bytes: int, slice_bytes: int) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._slice_bytes = slice_bytes
        self._views: dict[WatchedLog, dict[int, AddressView]] = {}
        # Logs in which a compacted segment is taking its place.
        self._held: set[WatchedLog] = set()

    def of(self, log: WatchedLog, magic: int) -> AddressView:
        """Return the view of a log in one magic.

        Raises OSError: BlockingIOError for the few milliseconds in which a compaction ends.
        """
        from core.kafka07.view import AddressView

        view = self._views.get(log, {}).get(magic)
        if view is None:
            if log in self._held:
                raise BlockingIOError(errno.EAGAIN, "a compaction is about to end")
            view = AddressView(self._pool, log, magic, self._max_bytes)
            self._views.setdefault(log, {})[magic] = view
        return view

    def existing(self, log: WatchedLog) -> list[AddressView]:
        """Return the views that a log has, open or on the disk. Raises OSError."""
        open_views = self._views.get(log, {})
        if not open_views and not os.path.exists(bases_path(log.directory)):  # noqa: PTH110 (see core.log.files)
            return []
        return [self.of(log, magic) for magic in known_magics(log.directory, open_views)]

    # --- events of logs ------------------------------------------------------------------------------------

    def removing(self, log: WatchedLog, segment: Segment) -> None:
        """See `LogSubscriber.removing`: the address of the segment that is then the first must be on the disk."""
        following = log.segments.all[1]
        for view in self.existing(log):
            view.before_removal(segment, following)

    def cut(self, log: WatchedLog) -> None:
        """See `LogSubscriber.cut`. Entries that the disk does not cut off are found wrong when they are read."""
        try:
            for view in self.existing(log):
                view.truncated(log.offsets.log_end_offset)
        except OSError as error:
            logger.warning("%s: its 0.7 addresses could not be cut: %s", log.tp, error.strerror)

    def closed(self, log: WatchedLog) -> None:
        """See `LogSubscriber.closed`."""
        self._held.discard(log)
        for view in self._views.pop(log, {}).values():
            view.close()

    def before_compaction(self, log: WatchedLog, until: int) -> Iterator[Chore]:
        """See `LogSubscriber.before_compaction`: measure all views up to the segment that begins at `until`."""
        for view in self.existing(log):
            for segment in [s for s in log.segments.all if s.base_offset <= until]:
                while not view.covers(segment):
                    task = view.begin_measuring(self._slice_bytes)
                    if task is None:
                        return
                    yield task
                    view.finish_measuring(task)

    def compacting(self, log: WatchedLog, group: Sequence[Segment]) -> Carriers | None:
        """See `LogSubscriber.compacting`. None if a view does not cover the group (yet)."""
        views = self.existing(log)
        if not views:
            return Carriers(self, log, ())
        from core.kafka07.carry import Carrier

        if not all(view.covers(segment) for view in views for segment in group):
            return None
        return Carriers(self, log, [Carrier(self._pool, view, group, self._max_bytes) for view in views])

    def hold(self, log: WatchedLog) -> None:
        """Open no new view of the log until `release`: from here on a compacted segment counts."""
        self._held.add(log)

    def release(self, log: WatchedLog) -> None:
        """End what `hold` began."""
        self._held.discard(log)


class Carriers:
    """The part of all views of one log in one compaction; a `core.log.events.Companion`.

    It has one carrier for each view, none if the log has no views.
    """

    def __init__(self, views: Kafka07Views, log: WatchedLog, carriers: Sequence[Carrier]) -> None:
        self._views = views
        self._log = log
        self._carriers = carriers

    @property
    def paths(self) -> list[str]:
        """See `Companion.paths`."""
        return [carrier.path for carrier in self._carriers]

    def take(
        self,
        segment: Segment,
        header: BatchHeader,
        records: Sequence[Record],
        kept: bytes | bytearray | None,
        position: int,
        *,
        whole: bool,
    ) -> None:
        """See `Companion.take`."""
        for carrier in self._carriers:
            carrier.take(segment, header, records, kept, position, whole=whole)

    def finish(self, size: int) -> None:
        """See `Companion.finish`."""
        for carrier in self._carriers:
            carrier.finish(size)

    def hold(self) -> bool:
        """See `Companion.hold`. False if a view was opened or has changed since: its addresses would move."""
        if [carrier.view for carrier in self._carriers if carrier.holds] != self._views.existing(self._log):
            return False
        self._views.hold(self._log)
        return True

    def swap(self) -> None:
        """See `Companion.swap`."""
        for carrier in self._carriers:
            carrier.swap()

    def done(self) -> None:
        """See `Companion.done`."""
        for carrier in self._carriers:
            carrier.done()

    def release(self) -> None:
        """See `Companion.release`."""
        self._views.release(self._log)

    def discard(self) -> None:
        """See `Companion.discard`."""
        for carrier in self._carriers:
            carrier.discard()
