"""Events of logs, for subscribers that keep files of their own next to a log's segments.

A subscriber is registered once for all logs of a broker (`LogManager.subscribe`), before the first log is opened:
what it keeps must survive retention, cuts and compaction also while no client of its kind is connected. The log
knows no subscriber by name. It renames, removes and recovers a subscriber's files with the segments that they
belong to, by their suffixes.

Compaction replaces a group of segments by one. A subscriber takes part in it by a `Companion`, whose files become
valid together with the new segment:

    take, finish   the companion writes <base><suffix>.swap, the cleaner <base>.log.cleaned; all of it is fsynced
    hold           the last moment to refuse: the pass is then dropped, and the next one tries again
                   the cleaner renames <base>.log.cleaned to <base>.log.swap and fsyncs the directory
    swap           the companion renames <base><suffix>.swap to <base><suffix>
                   the cleaner renames <base>.log.swap to <base>.log
    done, release  the new segment is in its place

A .swap file of a companion without <base>.log.swap is removed at the next start, as a .cleaned file is. With it,
recovery takes both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from core.log.flush import Chore
from core.log.segment import Segment
from core.log.segments import Segments
from core.records.header import BatchHeader
from core.records.record import Record
from core.types import AbortedTransaction, LogOffsets, TopicPartition


class WatchedLog(Protocol):
    """What a subscriber sees of a log (`core.log.log.Log`)."""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""

    @property
    def directory(self) -> str:
        """Where its files are."""

    @property
    def segments(self) -> Segments:
        """Its segments; the last one is the active one."""

    @property
    def size(self) -> int:
        """Bytes of all segments."""

    @property
    def offsets(self) -> LogOffsets:
        """Log start offset, high watermark, log end offset and last stable offset."""

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is on the disk."""

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in this range, by first offset."""


class Companion(Protocol):
    """One subscriber's part in the compaction of one group of segments."""

    @property
    def paths(self) -> Sequence[str]:
        """The files that were written, to be fsynced before the compacted segment counts."""

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
        """Take one batch of an old segment: its records, and the batch that replaces it at byte `position`.

        `kept` is None if nothing of the batch stays; `whole` says that all of it stays. Raises OSError, ValueError.
        """

    def finish(self, size: int) -> None:
        """Write what is left; the compacted segment has `size` bytes. Raises OSError."""

    def hold(self) -> bool:
        """Return whether the compacted segment may count. If so, nothing may change until `release`.

        Raises OSError.
        """

    def swap(self) -> None:
        """Put the files in their place, just before the segment's. Raises OSError."""

    def done(self) -> None:
        """Take note that the compacted segment is in its place."""

    def release(self) -> None:
        """End what `hold` began, whether it has worked or not."""

    def discard(self) -> None:
        """Remove what was written: the old segments stay."""


class LogSubscriber(Protocol):
    """Takes the events of all logs, on the event loop."""

    @property
    def sidecar_suffixes(self) -> Sequence[str]:
        """Suffixes of the files that it keeps next to a segment, named `<base offset><suffix>`."""

    @property
    def lasting_files(self) -> Sequence[str]:
        """Names of files in a partition's directory, fsynced before the files of a removed segment are unlinked."""

    def removing(self, log: WatchedLog, segment: Segment) -> None:
        """Prepare for the removal of the oldest segment. An OSError keeps the segment."""

    def cut(self, log: WatchedLog) -> None:
        """Take note that the log was cut at its log end offset, or begins again there."""

    def closed(self, log: WatchedLog) -> None:
        """Take note that the log is closed, or deleted."""

    def before_compaction(self, log: WatchedLog, until: int) -> Iterator[Chore]:
        """Yield what must be done, in a thread, before segments that begin at `until` or below are compacted.

        The next step is asked for after a chore has succeeded. Raises OSError.
        """

    def compacting(self, log: WatchedLog, group: Sequence[Segment]) -> Companion | None:
        """Return the part in a compaction; None if `group` must not be compacted yet. Raises OSError."""
