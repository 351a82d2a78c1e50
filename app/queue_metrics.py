"""The metrics of queues: what each of them holds, and what has happened in it since the start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from app.metrics_families import Family, Samples, gauge
from core.errors import BrokerError
from core.vocabulary.queues import Queues, QueueStats

# After this number of queues the event loop serves others.
_SLICE = 20


class QueueNumbers(NamedTuple):
    """The families of a scrape, and how many queues are beyond the limit."""

    families: list[Family]
    left_out: int


async def of_queues(queues: Queues, now_ms: int, most: int) -> QueueNumbers:
    """Return the numbers of the first `most` queues by name; nothing while another broker serves queues."""
    try:
        names = queues.names()
    except BrokerError:
        return QueueNumbers([], 0)
    found: list[tuple[str, QueueStats]] = []
    for index, name in enumerate(names[:most]):
        if index % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        try:
            # After a start the state of a queue is on the disk until its first use.
            await queues.look(name)
            found.append((name, queues.stats(name)))
        except BrokerError:
            # It was deleted meanwhile.
            continue
    return QueueNumbers(
        [gauge("sluice_queues", "Queues.", len(names)), *_families(found, now_ms)], max(0, len(names) - most)
    )


def _families(found: Sequence[tuple[str, QueueStats]], now_ms: int) -> list[Family]:
    records: Samples = []
    ages: Samples = []
    events: Samples = []
    for name, stats in found:
        parts = stats.partitions
        records += [
            ((name, "available"), sum(one.available for one in parts)),
            ((name, "in_flight"), sum(one.in_flight for one in parts)),
            ((name, "delayed"), sum(one.delayed for one in parts)),
            ((name, "archiving"), sum(one.archiving for one in parts)),
        ]
        oldest = [one.oldest_unsettled_ms for one in parts if one.oldest_unsettled_ms is not None]
        ages.append(((name,), max(0, now_ms - min(oldest)) / 1000 if oldest else 0.0))
        events += [((name, event), count) for event, count in stats.totals.items()]
    waiting: Samples = [((name,), stats.waiting_receivers) for name, stats in found]
    by_queue = ("queue",)
    return [
        Family(
            "gauge",
            "sluice_queue_records",
            "Records that are not settled. `available` can be received, `in_flight` are leased, `delayed` wait, "
            "`archiving` are on their way to the dead letters.",
            ("queue", "state"),
            records,
        ),
        Family(
            "gauge",
            "sluice_queue_oldest_unsettled_seconds",
            "Age of the oldest record that is not settled; 0 if there is none.",
            by_queue,
            ages,
        ),
        Family(
            "gauge",
            "sluice_queue_waiting_receivers",
            "Receives that wait for a record.",
            by_queue,
            waiting,
        ),
        Family(
            "counter",
            "sluice_queue_events",
            "What happened to records: deliveries, settlements, locks that ran out.",
            ("queue", "event"),
            events,
        ),
    ]
