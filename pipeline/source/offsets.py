"""Offsets as Spark keeps them, and how they are found: which partitions there are, where each begins and ends.

Spark compares offsets as JSON text, so they have one form: topics by name, partitions by number, `{"t": {"0": 23}}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.source.options import OptionError, ReadOptions, Start
from pipeline.wire.cluster import Cluster, TopicPartition
from pipeline.wire.errors import DataLossError

Json = dict[str, dict[str, int]]
Offsets = dict[TopicPartition, int]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Offsets in Spark's shape, sorted, so that equal offsets are equal text."""
    out: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        out.setdefault(topic, {})[str(partition)] = int(offset)
    return out


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets out of Spark's shape."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def partitions_of(
    cluster: Cluster, options: ReadOptions, *, missing_ok: bool = False
) -> list[TopicPartition]:
    """The partitions that are read, sorted. Raises UnknownTopicError for a topic that is not there.

    With `missing_ok`, topics and partitions that are not there are left out.
    """
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        found = {name: part for name, part in cluster.topics(None).items() if pattern.fullmatch(name)}
    elif options.assign is not None:
        there = cluster.topics(options.assign, missing_ok=missing_ok)
        found = {}
        for topic, wanted in options.assign.items():
            missing = sorted(set(wanted) - set(there.get(topic, ())))
            if missing and not missing_ok:
                raise OptionError(
                    f"assign: topic {topic} lacks partitions {missing}; it has {len(there[topic])}"
                )
            found[topic] = sorted(set(wanted) - set(missing))
    else:
        found = cluster.topics(options.topics, missing_ok=missing_ok)
    return sorted((topic, partition) for topic, partitions in found.items() for partition in partitions)


def resolve(cluster: Cluster, partitions: Iterable[TopicPartition], where: Start) -> Offsets:
    """The offset that `where` means in each partition. Raises OptionError if it does not fit the partitions."""
    partitions = list(partitions)
    wanted = _positions(partitions, where)
    ask = {tp: position for tp, position in wanted.items() if where.by_time or position < 0}
    found = cluster.offsets(ask)
    if where.by_time:
        late = sorted(tp for tp, offset in found.items() if offset < 0)
        if late and where.strict:
            topic, partition = late[0]
            raise OptionError(
                f"{where.option}: topic {topic}, partition {partition} has no record at or after "
                f"{wanted[topic, partition]}; startingOffsetsByTimestampStrategy=latest would begin at its end"
            )
        found.update(cluster.offsets(dict.fromkeys(late, LATEST)))
    return {tp: found.get(tp, wanted[tp]) for tp in partitions}


def _positions(partitions: list[TopicPartition], where: Start) -> Offsets:
    if where.each is None:
        assert where.position is not None
        return dict.fromkeys(partitions, where.position)
    if where.each.keys() != set(partitions):
        missing = sorted(set(partitions) - where.each.keys())
        extra = sorted(where.each.keys() - set(partitions))
        raise OptionError(
            f"{where.option} must name every partition that is read and no other (-1 latest, -2 earliest)"
            + (f"; it lacks {_names(missing)}" if missing else "")
            + (f"; it has {_names(extra)} too much" if extra else "")
        )
    return dict(where.each)


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)


def bounds(cluster: Cluster, partitions: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
    """Where each partition begins and ends now."""
    partitions = list(partitions)
    return (
        cluster.offsets(dict.fromkeys(partitions, EARLIEST)),
        cluster.offsets(dict.fromkeys(partitions, LATEST)),
    )


def data_loss(what: str) -> DataLossError:
    """Return the error for lost records, with what to do."""
    return DataLossError(
        f"{what}. Records were lost to this read: they aged out, were truncated, or the topic was deleted or "
        "created again. With the option failOnDataLoss=false reading continues with the records that exist."
    )
