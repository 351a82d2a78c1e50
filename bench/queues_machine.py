"""What the share-partition machine costs: processor time a record and memory.

In ranges, and with every second record settled.

Run `python -m bench.queues_machine`. Nothing else is measured: no store, no log, no listener.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from core.queues.share_partition import SharePartition
from core.vocabulary.queues import Backoff, QueueSettings, Verb

MILLION = 1_000_000
NOW = 1_700_000_000_000
SETTINGS = QueueSettings(max_in_flight=MILLION, backoff=Backoff(1_000))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _timed(what: str, records: int, work: Callable[[], object]) -> None:
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    print(f"{what:58} {seconds * 1e3:9.1f} ms {seconds / records * 1e6:7.3f} us/record")


def _rounds(partition: SharePartition, size: int, rounds: int) -> None:
    for number in range(1, rounds + 1):
        taken, change = partition.acquire(NOW, number, NOW + 30_000, MILLION, size)
        assert change is not None
        change.encode()
        for first, last, _ in taken:
            _, settled = partition.settle(NOW, Verb.ACCEPT, number, first, last)
            assert settled is not None
            settled.encode()


def _lease_all(partition: SharePartition) -> None:
    for number in range(1, 1_001):
        partition.acquire(NOW, number, NOW + 30_000, MILLION, 1_000)


def _settle_every_second(partition: SharePartition) -> None:
    for offset in range(0, MILLION, 2):
        partition.settle(NOW, Verb.ACCEPT, offset // 1_000 + 1, offset, offset)


def main() -> None:
    """Measure, and print a line for each."""
    _timed("acquire and accept, 100 at a time", 100_000, lambda: _rounds(_new(), 100, 1_000))
    _timed("acquire and accept, one at a time", 20_000, lambda: _rounds(_new(), 1, 20_000))
    before, partition = _peak_mb(), _new()
    _timed("lease a million in 1,000 leases", MILLION, lambda: _lease_all(partition))
    print(f"{'memory of a million in flight':58} {_peak_mb() - before:9.1f} MB")
    _timed("accept every second one, alone", MILLION // 2, lambda: _settle_every_second(partition))
    snapshot = partition.snapshot()
    _timed("snapshot", MILLION, partition.snapshot)
    _timed("restore it", MILLION, lambda: SharePartition.restored(SETTINGS, snapshot, [], NOW))
    _timed("the records of one lease", 500, lambda: partition.lease_ranges(500))
    late = NOW + 60_000
    _timed("expire all of it, in calls", MILLION // 2, lambda: _expire(partition, late))
    alone = _leased_alone()
    _timed("one call, each record with a lease of its own", 1_024, lambda: alone.expire(late))
    _timed(
        "acquire 1,000 from fragments", 1_000, lambda: partition.acquire(late, 2_000, late, MILLION, 1_000)
    )


def _new() -> SharePartition:
    return SharePartition(SETTINGS, 0, 1)


def _expire(partition: SharePartition, now_ms: int) -> None:
    while (due := partition.next_due()) is not None and due <= now_ms:
        partition.expire(now_ms)


def _leased_alone() -> SharePartition:
    partition = _new()
    for offset in range(16_384):
        partition.acquire(NOW, offset + 1, NOW + 30_000, MILLION, 1)
    return partition


if __name__ == "__main__":
    main()
