"""The nodes of Kafka 0.7 in ZooKeeper: which ones a broker writes, and what consumers' nodes say.

    /brokers/ids/[id]                                       creator:host:port, ephemeral
    /brokers/topics/[topic]/[id]                            number of partitions, ephemeral
    /consumers/[group]/ids/[consumer]                       what it subscribes to, ephemeral
    /consumers/[group]/owners/[topic]/[id]-[partition]      the consumer that reads it, ephemeral
    /consumers/[group]/offsets/[topic]/[id]-[partition]     the byte offset where it goes on

The nodes above these hold the id of who made them. Source: the 0.7 wire format, "ZooKeeper".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from core.vocabulary.foreign_groups import ByteOffset, ForeignGroup, ForeignMember

CONSUMERS = "/consumers"
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})")
_LONG = re.compile(r"-?\d{1,18}")


class Node(NamedTuple):
    """A node's path and value."""

    path: str
    value: bytes


def creator_of(host: str, started_ms: int) -> str:
    """The id that a broker signs its nodes with. 0.7 builds it so; clients are told not to rely on it."""
    return f"{host}-{started_ms}"


def id_node(broker_id: int, creator: str, host: str, port: int) -> Node:
    """The node that says where the broker is."""
    return Node(f"/brokers/ids/{broker_id}", f"{creator}:{host}:{port}".encode())


def topic_node(broker_id: int, topic: str, partitions: int) -> Node:
    """The node that says how many partitions of a topic the broker has."""
    return Node(f"/brokers/topics/{topic}/{broker_id}", str(partitions).encode())


def same_address(one: bytes, other: bytes) -> bool:
    """Whether two values of id nodes name the same host and port, whoever signed them."""
    return one.partition(b":")[2] == other.partition(b":")[2]


def read_groups(nodes: Iterable[Node], broker_id: int) -> list[ForeignGroup]:
    """The groups that these leaves below /consumers tell of. What does not look as it should is left out."""
    members: dict[str, dict[str, str]] = {}
    owned: dict[str, dict[str, list[tuple[str, int]]]] = {}
    offsets: dict[str, list[ByteOffset]] = {}
    for path, value in nodes:
        # "", consumers, group, kind, and one or two names
        _, _, group, kind, *names = path.split("/")
        members.setdefault(group, {})
        text = value.decode("utf-8", "replace")
        if kind == "ids" and len(names) == 1:
            members[group][names[0]] = text
        place = _PLACE.fullmatch(names[-1]) if len(names) == 2 else None
        if place is None:
            continue
        topic, found_id, partition = names[0], int(place[1]), int(place[2])
        if kind == "offsets" and _LONG.fullmatch(text):
            offsets.setdefault(group, []).append(ByteOffset(topic, found_id, partition, int(text)))
        elif kind == "owners" and found_id == broker_id:
            owned.setdefault(group, {}).setdefault(text, []).append((topic, partition))
    return [
        ForeignGroup(
            group,
            tuple(
                ForeignMember(one, text, tuple(sorted(_owned_by(one, owned.get(group, {})))))
                for one, text in sorted(known.items())
            ),
            tuple(sorted(offsets.get(group, ()))),
        )
        for group, known in sorted(members.items())
    ]


def _owned_by(member: str, owned: dict[str, list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """A consumer owns with several threads, each under the consumer's id, a dash and a number."""
    return [
        place
        for owner, places in owned.items()
        if owner == member or (owner.startswith(member + "-") and owner[len(member) + 1 :].isdigit())
        for place in places
    ]
