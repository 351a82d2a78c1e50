"""The nodes of 0.7: what a broker writes, and what its consumers' nodes mean."""

from __future__ import annotations

from typing import Any, cast

from core.kafka07.zookeeper import (
    Node,
    _leaves,
    creator_of,
    id_node,
    read_groups,
    same_address,
    topic_node,
)
from core.vocabulary.foreign_groups import ByteOffset, ForeignGroup, ForeignMember


def test_the_nodes_of_a_broker_are_those_of_the_text_s_example() -> None:
    creator = creator_of("10.0.0.12", 1324306324402)
    assert id_node(2, creator, "10.0.0.12", 9092) == (
        "/brokers/ids/2",
        b"10.0.0.12-1324306324402:10.0.0.12:9092",
    )
    assert topic_node(2, "dogs", 4) == ("/brokers/topics/dogs/2", b"4")


def test_an_address_is_the_same_by_any_signer() -> None:
    assert same_address(b"a-1:host:9092", b"b-2:host:9092")
    assert not same_address(b"a-1:host:9092", b"a-1:host:9093")
    assert not same_address(b"a-1:other:9092", b"a-1:host:9092")
    assert not same_address(b"", b"a-1:host:9092")


def test_a_group_is_read_from_its_ids_owners_and_offsets() -> None:
    nodes = [
        Node("/consumers/g/ids/c_1", b'{"t": 2}'),
        Node("/consumers/g/ids/c_2", b'{"t": 1}'),
        Node("/consumers/g/owners/t/1-0", b"c_1-0"),
        Node("/consumers/g/owners/t/1-1", b"c_1-1"),
        Node("/consumers/g/owners/t/2-0", b"c_2-0"),
        Node("/consumers/g/owners/t/1-2", b"c_2"),
        Node("/consumers/g/offsets/t/1-0", b"4711"),
        Node("/consumers/g/offsets/t/2-0", b"12"),
        Node("/consumers/old/offsets/t/1-0", b"0"),
    ]
    assert read_groups(nodes, broker_id=1) == [
        ForeignGroup(
            "g",
            (
                ForeignMember("c_1", '{"t": 2}', (("t", 0), ("t", 1))),
                ForeignMember("c_2", '{"t": 1}', (("t", 2),)),
            ),
            (ByteOffset("t", 1, 0, 4711), ByteOffset("t", 2, 0, 12)),
        ),
        ForeignGroup("old", (), (ByteOffset("t", 1, 0, 0),)),
    ]


def test_what_does_not_look_as_it_should_is_left_out() -> None:
    nodes = [
        Node("/consumers/g/offsets/t/1-0", b"not a number"),
        Node("/consumers/g/offsets/t/1-0", b"9" * 30),
        Node("/consumers/g/offsets/t/somewhere", b"1"),
        Node("/consumers/g/offsets/t/deeper/1-0", b"1"),
        Node("/consumers/g/owners/t/1-x", b"c"),
        Node("/consumers/g/else", b""),
        Node("/consumers/g/ids/\u2603", b"\xff\xfe"),
    ]
    assert read_groups(nodes, 1) == [ForeignGroup("g", (ForeignMember("\u2603", "\ufffd\ufffd", ()),), ())]


def test_a_group_with_nothing_below_it_is_a_group_without_members() -> None:
    assert read_groups([Node("/consumers/g", b"")], 1) == [ForeignGroup("g", (), ())]


class Flooded:
    """Nodes below /consumers as a hostile client of ZooKeeper writes them; counts what is asked for."""

    def __init__(self, names: int) -> None:
        self.names = [f"c{number}" for number in range(names)]
        self.asked = 0

    def children(self, path: str) -> list[str]:
        self.asked += 1
        return {"/consumers": ["g"], "/consumers/g": ["ids"], "/consumers/g/ids": self.names}.get(path, [])

    def get(self, path: str) -> tuple[bytes, Any]:
        return b"x" * 1_048_576, None


def test_a_flood_of_nodes_and_large_values_are_cut() -> None:
    flooded = Flooded(100_000)
    nodes, cut = _leaves(cast(Any, flooded), "/consumers", 500)
    assert cut and flooded.asked == 500 and len(nodes) == 497
    assert sum(len(node.value) for node in nodes) <= 497 * 4_096
    nodes, cut = _leaves(cast(Any, Flooded(497)), "/consumers", 500)
    assert not cut and len(nodes) == 497


def test_an_owner_is_a_member_or_one_of_its_threads() -> None:
    nodes = [Node(f"/consumers/g/ids/c{number}", b"") for number in range(3)]
    nodes += [
        Node("/consumers/g/owners/t/1-0", b"c0"),
        Node("/consumers/g/owners/t/1-1", b"c1-12"),
        Node("/consumers/g/owners/t/1-2", b"c1-x"),
        Node("/consumers/g/owners/t/1-3", b"-2"),
    ]
    (group,) = read_groups(nodes, 1)
    assert [one.owned for one in group.members] == [(("t", 0),), (("t", 1),), ()]
