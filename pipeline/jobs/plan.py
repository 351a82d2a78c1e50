"""What a job would read of topics, asked of the broker and the checkpoint, without Spark."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.jobs import state
from pipeline.jobs.settings import PASSWORD, Job, Snapshot, Streaming, Usage, check_starting, moment
from pipeline.source.options import KAFKA, Given, client_settings
from pipeline.wire.cluster import Cluster, UnknownTopicError

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


# The option of the source and the sink for each setting of a job that says how the brokers are reached.
_SECURITY = {
    "security_protocol": "kafka.security.protocol",
    "sasl_mechanism": "kafka.sasl.mechanism",
    "sasl_username": "kafka.sasl.username",
    "sasl_password_file": "kafka.sasl.password.file",
    "ssl_ca_location": "kafka.ssl.ca.location",
    "ssl_certificate_location": "kafka.ssl.certificate.location",
    "ssl_key_location": "kafka.ssl.key.location",
    "ssl_endpoint_identification_algorithm": "kafka.ssl.endpoint.identification.algorithm",
}


def cluster_options(settings: Job) -> dict[str, str]:
    """How to reach and log in to the brokers, as options of the source and the sink.

    A password of the environment is in them, so that they must not be printed or kept.
    """
    options = {"kafka.bootstrap.servers": settings.bootstrap}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name) if field.name in _SECURITY else None
        if value is not None and value != field.default:
            options[_SECURITY[field.name]] = value
    if settings.sasl_username is not None and settings.sasl_password_file is None and PASSWORD in os.environ:
        options["kafka.sasl.password"] = os.environ[PASSWORD]
    return options


def client(settings: Job) -> Cluster:
    """A client of the job's brokers, with little patience. Raises OptionError for a login that makes no sense."""
    found = client_settings(Given(cluster_options(settings), KAFKA))
    return Cluster(found._replace(client_id="sluice-spark-jobs", retry=PATIENCE_SECONDS))


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
        **cluster_options(settings),
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
    with client(settings) as cluster:
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
    with client(settings) as cluster:
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
