"""What a log knows of idempotent producers, found again in its snapshots and batches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from core.errors import BrokerError
from core.log.producer_state import ProducerStates, Snapshots
from core.log.segment import Segment
from core.types import TopicPartition

logger = logging.getLogger(__name__)


def replay_producers(
    name: TopicPartition,
    segments: Sequence[Segment],
    snapshots: Snapshots,
    end: int,
    *,
    limit: int,
    now_ms: int,
) -> ProducerStates:
    """The producers of the newest snapshot that can be read, and of the batches behind it, up to `end`.

    `limit` bounds how many are remembered; `now_ms` is monotonic. Torn snapshots are removed.
    """
    producers = ProducerStates(limit)
    after = 0
    for offset in reversed(snapshots.offsets):
        if producers.decode(snapshots.read(offset), now_ms):
            after = offset
            break
        logger.warning("%s: the producer snapshot at %d is torn", name, offset)
        snapshots.remove(offset)
    if after >= end:
        return producers
    for i, segment in enumerate(segments):
        if segment.size == 0 or (i + 1 < len(segments) and segments[i + 1].base_offset <= after):
            continue
        with contextlib.suppress(BrokerError):
            for _, header in segment.walk(segment.locate(after) if after > segment.base_offset else 0):
                if header.producer_id >= 0:
                    producers.update(header, header.base_offset, now_ms)
    return producers
