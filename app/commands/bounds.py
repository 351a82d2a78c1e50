"""Where partitions begin and end, and which offset a moment is in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from app.commands.client import Client, topic_path
from app.commands.errors import CommandError
from app.commands.moments import Moment
from app.commands.text import ranges


class Bounds(NamedTuple):
    """The first offset of a partition, and the one where reads end."""

    earliest: int
    latest: int


def isolation(committed: bool) -> dict[str, str]:
    """The parameter of a read, which is of committed records without it."""
    return {} if committed else {"isolation_level": "read_uncommitted"}


def bounds_of(
    detail: Mapping[str, Any], partitions: Iterable[int] | None = None, *, committed: bool = True
) -> dict[int, Bounds]:
    """The bounds of a topic's partitions, or of those that are wanted. Raises CommandError for one it has not.

    Reads of committed records end at the last stable offset, others at the high watermark.
    """
    end = "latest" if committed else "high_watermark"
    all_bounds = {p["partition"]: Bounds(p["earliest"], p[end]) for p in detail["partition_details"]}
    if partitions is None:
        return all_bounds
    wanted = list(partitions)
    missing = [p for p in wanted if p not in all_bounds]
    if missing:
        raise CommandError(
            f"Topic {detail['name']!r} has no partition {ranges(missing)}; it has {ranges(all_bounds)}."
        )
    return {p: all_bounds[p] for p in wanted}


def offsets_at(
    client: Client, topic: str, bounds: Mapping[int, Bounds], moment: Moment, *, committed: bool = True
) -> dict[int, int]:
    """The offset of a moment in each partition.

    A time later than all records is the end; a count from the end stops at the first record. An offset is
    taken as it is, also where it lies outside of the bounds.
    """
    if moment.kind == "offset":
        return dict.fromkeys(bounds, moment.value)
    if moment.kind == "back":
        return {p: max(b.earliest, b.latest - moment.value) for p, b in bounds.items()}
    if moment.kind == "earliest":
        return {p: b.earliest for p, b in bounds.items()}
    if moment.kind == "latest":
        return {p: b.latest for p, b in bounds.items()}
    found = client.get(f"{topic_path(topic)}/offsets", {"at": moment.at, **isolation(committed)})
    offsets = {p["partition"]: p["offset"] for p in found["partitions"]}
    return {p: b.latest if offsets.get(p) is None else offsets[p] for p, b in bounds.items()}
