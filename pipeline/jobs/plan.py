"""What a job would read of topics, asked of the broker and the checkpoint, without Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.jobs import state
from pipeline.jobs.settings import Job, Snapshot, Streaming, Usage, check_starting, moment
from pipeline.wire.cluster import ClientSettings, Cluster, UnknownTopicError

# A person waits for the plan: a broker that is away is reported, not waited for.
PATIENCE_SECONDS = 5.0


class Range(NamedTuple):
    """What would be read of one partition: from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    earliest: int

    @property
    def records(self) -> int:
        """How many offsets that are."""
        return max(0, self.end - self.start)


def client(bootstrap: str) -> Cluster:
    """A client of the brokers in `host:port,host:port`, with little patience."""
    addresses = []
    for one in bootstrap.split(","):
        host, _, port = one.strip().rpartition(":")
        addresses.append((host.strip("[]"), int(port)))
    return Cluster(ClientSettings(tuple(addresses), client_id="sluice-spark-jobs", retry=PATIENCE_SECONDS))


def topics_of(cluster: Cluster, topics: list[str], pattern: str | None) -> dict[str, list[int]]:
    """The partitions of the topics a job names. Raises UnknownTopicError."""
    if pattern is None:
        return cluster.topics(topics)
    found = {name: parts for name, parts in cluster.topics(None).items() if re.fullmatch(pattern, name)}
    if not found:
        raise UnknownTopicError(f"no topic matches {pattern!r}")
    return found


def source_options(settings: Streaming, *, headers: bool) -> dict[str, str]:
    """The options of the `sluice` source for a job."""
    options = {
        "kafka.bootstrap.servers": settings.bootstrap,
        "startingOffsets": settings.starting,
    }
    # A list of columns already decides about the headers.
    if "columns" not in (name.lower() for name in settings.source):
        options["includeHeaders"] = str(headers).lower()
    if settings.pattern:
        options["subscribePattern"] = settings.pattern
    else:
        options["subscribe"] = ",".join(settings.topics)
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    if settings.group:
        options["commitGroup"] = settings.group
    return {**options, **settings.source}


def plan(settings: Job) -> list[Range]:
    """The ranges that the next run would read first; none of a job that reads a table.

    Raises WireError if the brokers cannot tell, UnknownTopicError for a topic that is not there.
    """
    if isinstance(settings, Streaming):
        return _from_checkpoint(settings)
    if isinstance(settings, Snapshot):
        return _whole(settings, settings.topics, None, None)
    if isinstance(settings, Usage):
        pattern = settings.pattern if settings.topics else settings.pattern or ".*"
        return _whole(settings, settings.topics, pattern, settings.since)
    return []


def _whole(settings: Job, topics: list[str], pattern: str | None, since: str | None) -> list[Range]:
    """Topics from start to end, or from a time on."""
    with client(settings.bootstrap) as cluster:
        places = [
            (topic, part) for topic, parts in topics_of(cluster, topics, pattern).items() for part in parts
        ]
        earliest = cluster.offsets(dict.fromkeys(places, EARLIEST))
        latest = cluster.offsets(dict.fromkeys(places, LATEST))
        begin, start = moment("since", since), earliest
        if begin is not None:
            start = cluster.offsets(dict.fromkeys(places, int(begin.timestamp() * 1000)))
    ranges = []
    for topic, part in sorted(places):
        low, high, first = earliest[topic, part], latest[topic, part], start[topic, part]
        # Nothing is as young as that: there is nothing to read.
        ranges.append(Range(topic, part, high if first < 0 else max(first, low), high, low))
    return ranges


def _from_checkpoint(settings: Streaming) -> list[Range]:
    with client(settings.bootstrap) as cluster:
        topics = topics_of(cluster, settings.topics, settings.pattern)
        places = [(topic, partition) for topic, parts in topics.items() for partition in parts]
        earliest = cluster.offsets(dict.fromkeys(places, EARLIEST))
        latest = cluster.offsets(dict.fromkeys(places, LATEST))
    had = state.standing(state.checkpoint(Path(settings.state), settings.title())).offsets
    asked = {} if settings.starting in ("earliest", "latest") else check_starting(settings.starting)
    ranges = []
    for topic, partition in sorted(places):
        low, high = earliest[topic, partition], latest[topic, partition]
        start = low if had or settings.starting != "latest" else high
        wanted = asked.get(topic, {}).get(str(partition), start)
        start = {EARLIEST: low, LATEST: high}.get(wanted, wanted)
        start = had.get(topic, {}).get(str(partition), start)
        ranges.append(Range(topic, partition, start, high, low))
    return ranges


def lost(ranges: list[Range]) -> list[str]:
    """What is wrong with a plan: offsets that the topic does not hold (any more)."""
    words = []
    for one in ranges:
        if one.start < one.earliest:
            gone = f"offsets {one.start} to {one.earliest - 1} are deleted"
            words.append(f"{one.topic}-{one.partition}: {gone}; the topic begins at {one.earliest}")
        elif one.start > one.end:
            words.append(
                f"{one.topic}-{one.partition}: the job stands at {one.start}, beyond the end {one.end}"
            )
    return words
