"""Offsets in Spark's shape, and the positions that options mean, asked of a cluster that is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import pytest

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.source.offsets import from_json, partitions_of, resolve, to_json
from pipeline.source.options import OptionError, ReadOptions, read_options
from pipeline.wire.cluster import Cluster, TopicPartition

SERVERS = {"kafka.bootstrap.servers": "h:1"}


class _Cluster:
    """Two topics: `t` with records 5 to 9 in each of 11 partitions, of the times 50 to 90; `u` empty."""

    def topics(self, names: list[str] | None, *, missing_ok: bool = False) -> dict[str, list[int]]:
        there = {"t": list(range(11)), "u": [0]}
        return {name: there[name] for name in names or there if name in there or not missing_ok}

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        def find(topic: str, when: int) -> int:
            first, end = (5, 10) if topic == "t" else (0, 0)
            if when in (EARLIEST, LATEST):
                return first if when == EARLIEST else end
            return next((n for n in range(first, end) if n * 10 >= when), -1)

        return {tp: find(tp[0], when) for tp, when in asked.items()}


CLUSTER = cast("Cluster", _Cluster())


def _options(**more: str) -> ReadOptions:
    return read_options({**SERVERS, **more}, streaming=False)


def test_equal_offsets_are_equal_text_and_partitions_are_in_order_of_number() -> None:
    offsets = {("b", 0): 1, ("a", 10): 3, ("a", 2): 2}
    text = json.dumps(to_json(offsets))
    assert text == '{"a": {"2": 2, "10": 3}, "b": {"0": 1}}'
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text
    assert from_json(json.loads(text)) == offsets


def test_partitions_are_chosen_by_name_pattern_and_assignment() -> None:
    assert len(partitions_of(CLUSTER, _options(subscribe="t"))) == 11
    assert partitions_of(CLUSTER, _options(subscribePattern="u|v")) == [("u", 0)]
    assert partitions_of(CLUSTER, _options(assign='{"t":[3,1]}')) == [("t", 1), ("t", 3)]
    with pytest.raises(OptionError, match=r"topic t lacks partitions \[11\]; it has 11"):
        partitions_of(CLUSTER, _options(assign='{"t":[11]}'))


def test_a_position_is_an_end_an_offset_or_a_time() -> None:
    u, t = ("u", 0), ("t", 0)
    for options, expected in (
        ({"startingOffsets": "earliest"}, 5),
        ({"startingOffsets": '{"t":{"0":-1}}'}, 10),
        ({"startingOffsets": '{"t":{"0":7}}'}, 7),
        ({"startingTimestamp": "61"}, 7),
    ):
        assert resolve(CLUSTER, [t], _options(subscribe="t", **options).start) == {t: expected}, options
    late = {"startingTimestamp": "91", "startingOffsetsByTimestampStrategy": "latest"}
    assert resolve(CLUSTER, [t, u], _options(subscribe="t,u", **late).start) == {t: 10, u: 0}


def test_positions_that_do_not_fit_the_partitions_are_refused_by_name() -> None:
    with pytest.raises(OptionError, match="it lacks t-1; it has t-9 too much"):
        start = _options(subscribe="t", startingOffsets='{"t":{"0":1,"9":1}}').start
        resolve(CLUSTER, [("t", 0), ("t", 1)], start)
    with pytest.raises(OptionError, match="topic t, partition 0 has no record at or after 91"):
        resolve(CLUSTER, [("t", 0)], _options(subscribe="t", startingTimestamp="91").start)
