"""What a broker counts about itself: whole numbers and histograms, without a lock, on the event loop.

`core` does not know their readers. Counting must be cheap, so a meter is two additions and a search in a short tuple.
`app.metrics` formats the numbers when they are requested.

What runs in a thread is timed there and noted on the loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

# Upper bounds of the buckets, in seconds: from a produce out of memory (50 µs) to a long poll.
BOUNDS: tuple[float, ...] = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
)  # fmt: skip

Key = TypeVar("Key", bound=Hashable)


class Meter:
    """Events of one kind: how many took how long, in seconds, and the bytes that they moved."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "seconds")

    def __init__(self) -> None:
        # One more than BOUNDS: the last is for what took longer than all of them.
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0

    def note(self, seconds: float, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """Count one event."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    @property
    def count(self) -> int:
        """Events so far."""
        return sum(self.buckets)


class Meters(dict[Key, Meter]):
    """A meter for each key, made when the key first comes. The keys must be few: names of ours, not of clients."""

    def __missing__(self, key: Key) -> Meter:
        meter = self[key] = Meter()
        return meter


class Tally(dict[Key, int], Generic[Key]):
    """A number for each key that has come. The keys must be few: names of ours, not of clients."""

    def __missing__(self, key: Key) -> int:
        return 0


class ListenerLoad(NamedTuple):
    """The load of a listener: open connections and bytes of arriving frames now; since the start, connections
    accepted, and connections refused or closed because of what arrived over them."""

    scheme: str
    connections: int
    inflight_bytes: int
    accepted: int
    refused: int


class Handshakes:
    """The TLS handshakes of one listener: those under way, and since the start those completed and failed."""

    def __init__(self) -> None:
        self.under_way = 0
        self.completed = 0
        self.failed = 0


class Counters:
    """All counters of one broker. They start at zero with the process and only rise."""

    def __init__(self) -> None:
        # Requests over Kafka's protocol by API key, from the whole frame to the answer that is ready to be sent.
        self.requests: Meters[int] = Meters()
        # (API key, error code) → how often that code stood in an answer.
        self.errors: Tally[tuple[int, int]] = Tally()
        # The same of the line protocol, by command and by the words of its codes.
        self.lines: Meters[str] = Meters()
        self.line_errors: Tally[tuple[str, str]] = Tally()
        # The same of Kafka 0.7, by the names of its requests and errors.
        self.kafka07: Meters[str] = Meters()
        self.kafka07_errors: Tally[tuple[str, str]] = Tally()
        # fsyncs of logs; `failed_fsyncs` of them failed.
        self.fsyncs = Meter()
        self.failed_fsyncs = 0
        # Positions of groups and managed consumers that lay beyond the end of a log and were moved back to it.
        self.positions_cut_back = 0
        # Transactions of the metadata store, and the jobs in them.
        self.commits = Meter()
        self.committed_jobs = 0
