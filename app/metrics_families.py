"""The data of a scrape: families of metrics, made of the meters of `core.counters`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.counters import Meter

Samples = list[tuple[tuple[str, ...], float]]
Meterings = list[tuple[tuple[str, ...], Meter]]


class Family(NamedTuple):
    """One metric with its numbers: a counter or a gauge."""

    kind: str
    name: str
    meaning: str
    labels: tuple[str, ...]
    samples: Samples


class Timing(NamedTuple):
    """A histogram in seconds: for each set of labels the counts of its buckets and the sum."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], list[int], float]]


def gauge(name: str, meaning: str, value: float) -> Family:
    """Return a gauge without labels."""
    return Family("gauge", name, meaning, (), [((), value)])


def counter(name: str, meaning: str, value: float) -> Family:
    """Return a counter without labels."""
    return Family("counter", name, meaning, (), [((), value)])


def timing(name: str, meaning: str, meter: Meter) -> Timing:
    """Return a histogram without labels."""
    return Timing(name, meaning, (), [((), meter.buckets[:], meter.seconds)])


def metered(
    prefix: str,
    what: str,
    labels: tuple[str, ...],
    meters: Meterings,
    counted: bool = True,
) -> Iterator[Family | Timing]:
    """Return the families of meters: events (unless not `counted`), bytes both ways, and how long they took."""
    if counted:
        counts: Samples = [(key, meter.count) for key, meter in meters]
        yield Family("counter", f"{prefix}_requests", f"All {what}.", labels, counts)
    came: Samples = [(key, meter.bytes_in) for key, meter in meters]
    went: Samples = [(key, meter.bytes_out) for key, meter in meters]
    yield Family("counter", f"{prefix}_received_bytes", f"Bytes of {what}.", labels, came)
    yield Family("counter", f"{prefix}_sent_bytes", f"Bytes of answers to {what}.", labels, went)
    times = [(key, meter.buckets[:], meter.seconds) for key, meter in meters]
    yield Timing(f"{prefix}_request_duration_seconds", f"How long {what} took.", labels, times)


def add(total: Meter, one: Meter) -> None:
    """Add the events of one meter to another."""
    total.buckets = [a + b for a, b in zip(total.buckets, one.buckets, strict=True)]
    total.seconds += one.seconds
    total.bytes_in += one.bytes_in
    total.bytes_out += one.bytes_out
