"""What readers and members of groups have seen, held against the Kafka model, in Jepsen's manner.

Clients note what happens to them; `check` says what cannot have happened. The anomalies, by Jepsen's names:

    inconsistent offset   two values at one offset of a partition
    duplicate             one value at two offsets
    lost write            acknowledged, and not in the log in the end
    reordered writes      values of one producer and partition out of their order
    non-monotonic poll    within one assignment a reader was given an offset again, or a lower one
    poll skip             within one assignment a reader was not given what lies between two offsets
    unseen                acknowledged, and after a drain not handed out to a group that reads the topic
    lost commit           an owner began below what was answered to have been committed
    commit from nowhere   an owner began above everything that any member has tried to commit
    two owners            two members own a partition in one generation

Source: the workload of Jepsen's tests of Kafka and Redpanda, in our own words, for our own promises.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Partition = tuple[str, int]
Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass
class Session:
    """What one reader was given of one partition in one assignment, from the first record on."""

    reader: str
    group: str
    partition: Partition
    # Confirmed when the session began; the most that was ever tried when its first record came.
    confirmed: int
    attempted: int = -1
    polled: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class History:
    """Events of all clients; every method may be called from any thread."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    owners: dict[tuple[str, int, Partition], set[str]] = field(default_factory=lambda: defaultdict(set))
    confirmed: dict[tuple[str, Partition], int] = field(default_factory=dict)
    attempted: dict[tuple[str, Partition], int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    # Nothing more is written; then, once everything is read, the end.
    enough: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, what: str) -> None:
        """Something that a client was told and must not be told; it ends the run."""
        self.failures.append(what)
        self.end()

    def end(self) -> None:
        """Let all clients come to their end."""
        self.enough.set()
        self.stop.set()

    def acknowledge(self, place: Place, value: bytes) -> None:
        """A write was answered with its place."""
        with self._lock:
            before = self.acknowledged.setdefault(place, value)
        if before != value:
            self.fail(f"inconsistent offset: {place} was given to {before!r} and to {value!r}")

    def begin(self, reader: str, group: str, partition: Partition) -> Session:
        """A reader owns a partition from now on."""
        with self._lock:
            session = Session(reader, group, partition, self.confirmed.get((group, partition), 0))
            self.sessions.append(session)
        return session

    def poll(self, session: Session, offset: int, value: bytes) -> None:
        """A record was handed out."""
        with self._lock:
            if not session.polled:
                session.attempted = self.attempted.get((session.group, session.partition), 0)
            session.polled.append((offset, value))

    def own(self, group: str, generation: int, partition: Partition, member: str) -> None:
        """A member was told that a partition is its own in a generation."""
        with self._lock:
            self.owners[group, generation, partition].add(member)

    def try_commit(self, group: str, partition: Partition, offset: int) -> None:
        """A commit is on its way; it may be stored from now on."""
        with self._lock:
            key = (group, partition)
            self.attempted[key] = max(self.attempted.get(key, 0), offset)

    def commit(self, group: str, partition: Partition, offset: int) -> None:
        """A commit was answered."""
        with self._lock:
            key = (group, partition)
            self.confirmed[key] = max(self.confirmed.get(key, 0), offset)


def unseen(history: History, groups: Mapping[str, Collection[str]]) -> list[str]:
    """Acknowledged writes that were never handed out to a group; `groups` says which topics each one reads."""
    found = []
    for group, topics in groups.items():
        seen = {
            (*session.partition, offset)
            for session in list(history.sessions)
            if session.group == group
            for offset, _ in list(session.polled)
        }
        missing = [place for place in list(history.acknowledged) if place[0] in topics and place not in seen]
        found += [f"unseen: {place} was never handed out to {group}" for place in missing]
    return found


def check(history: History, log: dict[Place, bytes], once: set[str], ordered: set[str]) -> list[str]:
    """All anomalies of a history, against everything that is in the logs in the end.

    Values of the topics `once` must not be duplicates; those of `ordered` end in a number that rises.
    """
    return [
        *history.failures,
        *_writes(history, log),
        *_duplicates(log, once),
        *_order(log, ordered),
        *_sessions(history, log),
        *(
            f"two owners: {partition} in generation {generation} of {group}: {sorted(members)}"
            for (group, generation, partition), members in history.owners.items()
            if len(members) > 1
        ),
    ]


def _writes(history: History, log: dict[Place, bytes]) -> list[str]:
    found = []
    for place, value in history.acknowledged.items():
        if place not in log:
            found.append(f"lost write: {value!r} was acknowledged at {place}")
        elif log[place] != value:
            found.append(f"inconsistent offset: {place} was {value!r}, now it is {log[place]!r}")
    return found


def _duplicates(log: dict[Place, bytes], once: set[str]) -> list[str]:
    places: dict[tuple[str, bytes], Place] = {}
    found = []
    for place, value in sorted(log.items()):
        before = places.setdefault((place[0], value), place)
        if before != place and place[0] in once:
            found.append(f"duplicate: {value!r} at {before} and {place}")
    return found


def _order(log: dict[Place, bytes], ordered: set[str]) -> list[str]:
    found = []
    last: dict[Partition, int] = {}
    for (topic, partition, offset), value in sorted(log.items()):
        if topic in ordered:
            number = int(value.rpartition(b"-")[2])
            if number <= last.get((topic, partition), -1):
                found.append(f"reordered writes: {value!r} at {topic}-{partition} @{offset}")
            last[topic, partition] = number
    return found


def _sessions(history: History, log: dict[Place, bytes]) -> list[str]:
    found = []
    for session in history.sessions:
        who = f"{session.reader} of {session.group} in {session.partition}"
        previous = None
        for offset, value in session.polled:
            if log.get((*session.partition, offset)) != value:
                found.append(f"inconsistent offset: {who} was given {value!r} at {offset}")
            if previous is None:
                if offset < session.confirmed:
                    found.append(f"lost commit: {who} began at {offset}, {session.confirmed} was committed")
                if offset > session.attempted:
                    found.append(f"commit from nowhere: {who} began at {offset}, {session.attempted} at most")
            elif offset <= previous:
                found.append(f"non-monotonic poll: {who} was given {offset} after {previous}")
            elif offset != previous + 1:
                found.append(f"poll skip: {who} was given {offset} after {previous}")
            previous = offset
    return found
