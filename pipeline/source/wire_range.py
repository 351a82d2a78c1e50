"""A partition read over the wire: offset ranges into Arrow batches, what is lost on the way, and what to do then."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline import limits
from pipeline.decode.decoder import decoder
from pipeline.decode.walk import Place, walk
from pipeline.source.offsets import data_loss
from pipeline.source.options import ReadOptions
from pipeline.source.planning import OffsetRange
from pipeline.wire.cluster import Cluster, UnknownTopicError
from pipeline.wire.errors import WireError
from pipeline.wire.fetch import OffsetGoneError, PartitionFetcher

logger = logging.getLogger(__name__)


def wire_range(cluster: Cluster, one: OffsetRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The records of one range by Fetch. The next answer travels while one is decoded.

    Raises DataLossError if records below the range's end are lost and `failOnDataLoss` is on, CorruptDataError, and
    WireError if a broker returns no records below its high watermark.
    """
    place = Place(one.topic, one.partition, "fetched")
    decode = decoder()
    fetcher = PartitionFetcher(cluster, one.topic, one.partition)
    offset, empty = one.start, 0
    fetcher.ask(offset)
    while offset < one.end:
        try:
            fetched = fetcher.take()
        except (OffsetGoneError, UnknownTopicError) as error:
            offset = _after_loss(cluster, one, offset, error, options)
            fetcher.ask(offset)
            continue
        walked = walk(fetched.records, offset, one.end, place, fetched.aborted)
        if walked.next_offset <= offset:
            empty += 1
            if empty > limits.EMPTY_FETCHES:
                raise WireError(
                    f"topic {one.topic}, partition {one.partition}: nothing comes at offset {offset}, though there "
                    f"should be records up to {one.end} (high watermark {fetched.high_watermark})"
                )
            if len(fetched.records):
                fetcher.grow()
            fetcher.ask(offset)
            continue
        empty = 0
        start, offset = offset, walked.next_offset
        if offset < one.end:
            fetcher.ask(offset)
        yield from decode(fetched.records, walked.found, start, one.end, place, options.columns)


def _after_loss(
    cluster: Cluster, one: OffsetRange, offset: int, error: WireError, options: ReadOptions
) -> int:
    """Return where to continue if an offset is lost. Raises DataLossError if that is not allowed."""
    what = f"Topic {one.topic}, partition {one.partition}, offset {offset} is lost ({error})"
    if options.fail_on_data_loss:
        raise data_loss(what)
    tp = (one.topic, one.partition)
    try:
        earliest = cluster.offsets({tp: EARLIEST})[tp]
        latest = cluster.offsets({tp: LATEST})[tp]
    except UnknownTopicError:
        earliest = latest = one.end
    target = one.end if latest <= offset else max(earliest, offset)
    logger.warning("%s; reading continues at %d", what, min(target, one.end))
    return target
