"""What a worker does: the ranges of its task into Arrow batches, over the wire or out of segment files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipeline.source.options import ReadOptions
from pipeline.source.planning import OffsetRange
from pipeline.source.segments import segment_range
from pipeline.source.wire_range import wire_range
from pipeline.wire.cluster import Cluster


def scan(ranges: tuple[OffsetRange, ...], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order. Keeps nothing for the next call."""
    read = segment_range if options.transport == "segments" else wire_range
    with Cluster(options.settings) as cluster:
        for one in ranges:
            yield from read(cluster, one, options)
