"""Old message formats on their way in and out, in this process: what a conversion costs, without the listener."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench import floors
from bench.case import Figure, case, least_of
from core.records.batch import build_batch
from core.records.conversion import down_convert, up_convert
from core.records.message_set import encode_plain
from core.records.record import NewRecord
from core.topic_config import TopicConfig

MICRO, MILLI = 1e6, 1e3
NOW = 1_700_000_000_000
ENOUGH = 1 << 30


def _cost(work: Callable[[], object], count: int, repeats: int) -> list[float]:
    """Processor seconds of one call, one sample per repeat."""
    work()
    samples = []
    for _ in range(repeats):
        start = time.thread_time()
        for _ in range(count):
            work()
        samples.append((time.thread_time() - start) / count)
    return samples


@case
def up_conversion(repeats: int) -> list[Figure]:
    """A set of 100 messages, 16 KB, magic 0 and 1, uncompressed, into a batch."""
    figures = []
    for magic in (0, 1):
        messages = [(i, NOW if magic else -1, b"k%d" % i, b"v" * 130) for i in range(100)]
        data = encode_plain(magic, 0, messages)
        convert = partial(up_convert, data, TopicConfig(), now_ms=NOW, max_bytes=ENOUGH)
        samples = [one * MICRO for one in _cost(convert, 200, repeats)]
        what = f"up-conversion from magic {magic}, {len(data) / 1024:.1f} KB, 100 messages"
        figures.append(least_of(what, samples, "µs", 150, floors.copy_us(len(data))))
    return figures


@case
def down_conversion(repeats: int) -> list[Figure]:
    """1 MB of stored batches of 16 KB, records of 1 KB and of 100 B, into a set of magic 0 and 1."""
    figures = []
    for size, per_batch in ((1000, 16), (100, 150)):
        records = [NewRecord(key=b"k%d" % i, value=b"v" * size) for i in range(per_batch)]
        batches = [build_batch(records, now_ms=NOW, base_offset=per_batch * i) for i in range(64)]
        data = b"".join(batches)
        for magic in (0, 1):
            convert = partial(down_convert, data, magic, first_offset=0, max_bytes=ENOUGH)
            samples = [one * MILLI for one in _cost(convert, 5, repeats)]
            what = f"down-conversion of {len(data) / 1e6:.2f} MB to magic {magic}, records of {size} B"
            figures.append(least_of(what, samples, "ms", 8, floors.copy_us(len(data)) / 1000))
    return figures
