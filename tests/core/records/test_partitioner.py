"""Keys go where the Java client would put them; batches without keys take turns."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from core.records.partitioner import StickyPartitions, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_numbers_of_kafkas_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=600))
def test_murmur2_agrees_with_aiokafka(key: bytes) -> None:
    assert murmur2(key) & 0x7FFFFFFF == aiokafka_murmur2(key) & 0x7FFFFFFF


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_key_has_one_partition_among_those_there_are(key: bytes, partitions: int) -> None:
    partition = partition_for_key(key, partitions)
    assert partition == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_batches_without_keys_visit_every_partition_in_turn() -> None:
    turns = StickyPartitions()
    assert [turns.choose("a", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [turns.choose("b", 2) for _ in range(3)] == [0, 1, 0]
    turns.forget("a")
    assert turns.choose("a", 3) == 0
    turns.forget("never seen")


def test_turns_follow_a_topic_that_grows() -> None:
    turns = StickyPartitions()
    assert [turns.choose("a", 1), turns.choose("a", 1), turns.choose("a", 4)] == [0, 0, 2]
