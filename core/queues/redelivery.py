"""When a record is delivered again, and when it is given up: what the settings of a queue say."""

from __future__ import annotations

import zlib
from typing import Final

from core.queues.cells import MAX_DELIVERIES
from core.queues.share_changes import ARCHIVING, AVAILABLE, CAUSES, DELAYED, DONE, Cell
from core.vocabulary.queues import Cause, QueueSettings

# The first pause of a record that has reached the limit, if it must not be given up; it doubles with each delivery.
HOLD_MS: Final = 1_000
_MAX_EXPONENT: Final = 60


def pause_ms(settings: QueueSettings, cell: Cell) -> int:
    """Return the pause after a delivery that failed.

    The jitter follows from the lease and the number of deliveries, so that a restart computes the same pause.
    """
    backoff, number = settings.backoff, max(cell.deliveries, 1)
    pause = 0.0
    if backoff.first_ms > 0:
        pause = backoff.first_ms * backoff.factor ** min(number - 1, _MAX_EXPONENT)
    limit = settings.delivery_limit
    if limit is not None and number >= limit and not gives_up(settings, cell):
        pause = max(pause, HOLD_MS * 2.0 ** min(number - limit, _MAX_EXPONENT))
    pause = min(pause, backoff.max_ms)
    if backoff.jitter:
        share = zlib.crc32(b"%d.%d" % (cell.lease, cell.deliveries)) / 0xFFFFFFFF
        pause *= 1 + backoff.jitter * (2 * share - 1)
    return int(pause)


def gives_up(settings: QueueSettings, cell: Cell) -> bool:
    """Return whether a record has had its last delivery."""
    limit = settings.delivery_limit
    if limit is None or cell.deliveries < limit:
        return False
    return settings.dead_letter is not None or settings.drop


def next_count(settings: QueueSettings, cell: Cell) -> int:
    """Return the number of deliveries with the next one.

    It does not exceed the limit where records are given up: one that lost its last lease to a truncation of the log,
    or to the end of a session with the process, is delivered once more as its last delivery.
    """
    number = min(cell.deliveries + 1, MAX_DELIVERIES)
    limit = settings.delivery_limit
    if limit is not None and number > limit and (settings.dead_letter is not None or settings.drop):
        return cell.deliveries
    return number


def given_up(settings: QueueSettings, cell: Cell, cause: Cause) -> Cell:
    """Return what a record is that is given up: on its way to the dead letters, or settled if there are none."""
    if settings.dead_letter is None:
        return DONE
    return Cell(ARCHIVING, cell.deliveries, cell.lease, CAUSES.index(cause))


def again(cell: Cell, now_ms: int, delay_ms: int) -> Cell:
    """Return what a record is that is delivered again after a delay."""
    if delay_ms <= 0:
        return Cell(AVAILABLE, cell.deliveries, cell.lease, 0)
    return Cell(DELAYED, cell.deliveries, cell.lease, now_ms + delay_ms)


def returned(settings: QueueSettings, cell: Cell, now_ms: int, cause: Cause) -> Cell:
    """Return what a record is after a delivery that failed: available after a pause, or given up."""
    if gives_up(settings, cell):
        return given_up(settings, cell, cause)
    return again(cell, now_ms, pause_ms(settings, cell))
