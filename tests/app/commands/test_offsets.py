"""`sluice offsets`: committed offsets, and offsets by time."""

from __future__ import annotations

import pytest

from tests.app.commands.running import Sluice


def test_what_was_set_is_what_one_gets(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", *"abcdef")
    assert (
        sluice("offsets", "set", topic, f"{topic}:0=4", f"{topic}:2=0").out
        == f"Group {topic}: 2 offsets set.\n"
    )
    ran = sluice("offsets", "get", topic)
    assert ran.lines[0].split() == ["TOPIC", "PARTITION", "NEXT", "OFFSET", "COMMITTED", "METADATA"]
    assert [row[:3] for row in ran.rows] == [[topic, "0", "4"], [topic, "2", "0"]]
    found = sluice("offsets", "get", topic, "--json").json
    assert [(o["partition"], o["next_offset"]) for o in found["offsets"]] == [(0, 4), (2, 0)]
    done = sluice("offsets", "set", topic, f"{topic}:0=5", "--json").json
    assert done["offsets"] == [{"topic": topic, "partition": 0, "next_offset": 5}]


def test_offsets_of_some_topics_alone(sluice: Sluice, topic: str) -> None:
    sluice("topics", "create", "second-topic", "--if-not-exists")
    sluice("offsets", "set", topic, f"{topic}:0=0", "second-topic:0=0")
    assert len(sluice("offsets", "get", topic).rows) == 2
    assert [row[0] for row in sluice("offsets", "get", topic, "-t", "second-topic").rows] == ["second-topic"]


@pytest.mark.parametrize(
    "position",
    ["orders", "orders:0", "orders=5", "orders:x=1", "orders:0=-1", f"t:0={2**63}", f"t:{2**31}=0"],
)
def test_a_position_has_its_form(sluice: Sluice, position: str) -> None:
    ran = sluice("offsets", "set", "g", position, code=2)
    assert "is not like orders:0=1500" in ran.err


def test_nothing_is_set_when_one_of_them_is_wrong(sluice: Sluice, topic: str) -> None:
    assert sluice("offsets", "set", topic, f"{topic}:0=0", "no-such-topic:0=1", code=1).out == ""
    assert sluice("offsets", "get", topic, code=1).out == ""


def test_offsets_are_forgotten_by_topic_or_partition(sluice: Sluice, topic: str) -> None:
    sluice("offsets", "set", topic, *(f"{topic}:{p}=0" for p in range(3)))
    ran = sluice("offsets", "delete", topic, topic, "-p", "1")
    assert ran.out == f"Group {topic}: 1 offset of topic {topic} forgotten.\n"
    assert [row[1] for row in sluice("offsets", "get", topic).rows] == ["0", "2"]
    assert sluice("offsets", "delete", topic, topic, "--json").json["deleted"] == [0, 2]
    assert sluice("offsets", "delete", topic, topic, code=1).out == ""


def test_offsets_by_time_are_those_of_the_first_record_not_older(sluice: Sluice, topic: str) -> None:
    for day in (1, 2, 3):
        sluice("produce", topic, "-p", "0", "--timestamp", f"2020-01-0{day}T00:00Z", "x")
    ran = sluice("offsets", "at", topic, "2020-01-02T00:00Z")
    assert ran.lines[0].split() == ["PARTITION", "OFFSET", "TIMESTAMP", "EARLIEST", "LATEST"]
    assert ran.rows == [
        ["0", "1", "2020-01-02T00:00:00.000Z", "0", "3"], ["1", "-", "-", "0", "0"], ["2", "-", "-", "0", "0"],
    ]  # fmt: skip
    document = sluice("offsets", "at", topic, "2020-01-02T00:00Z", "-p", "0", "--json").json
    assert document["at"] == "1577923200000"
    assert document["partitions"] == [
        {"partition": 0, "offset": 1, "timestamp": "2020-01-02T00:00:00.000Z", "earliest": 0, "latest": 3}
    ]


@pytest.mark.parametrize(("moment", "offset"), [("earliest", "0"), ("latest", "3"), ("-2", "1"), ("1h", "0")])
def test_offsets_at_ends_and_ages(sluice: Sluice, topic: str, moment: str, offset: str) -> None:
    sluice("produce", topic, "-p", "1", *"abc")
    assert sluice("offsets", "at", topic, moment, "-p", "1").rows[0][:2] == ["1", offset]
    assert sluice("offsets", "at", topic, moment, "--json").json["topic"] == topic


def test_a_moment_that_is_none_is_explained(sluice: Sluice, topic: str) -> None:
    assert "'noon' is not one of: earliest" in sluice("offsets", "at", topic, "noon", code=2).err
    assert "no topic named" in sluice("offsets", "at", "nowhere", code=1).err
