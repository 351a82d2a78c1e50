"""Groups on disk: what the coordinator saves comes back, row by row, and is deleted on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.groups.effects import (
    GroupChange,
    GroupDeleted,
    OffsetsChange,
    StoredGroup,
    StoredMember,
    StoredOffset,
    StoredState,
)
from core.groups.store import MetadataGroupStore
from core.metadata.store import Store
from core.vocabulary.groups import CommittedOffset

GROUP = StoredGroup("g", "Stable", "consumer", 3, "range", "a", -1)
MEMBER = StoredMember(
    "g", "a", None, "c", "/h", 10_000, 60_000, (("range", b"\0\xff"), ("sticky", b"")), b"\1"
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataGroupStore]:
    opened = Store(tmp_path / "m.db")
    await opened.open(check=False)
    yield MetadataGroupStore(opened)
    await opened.close()


async def kept(store: MetadataGroupStore) -> StoredState:
    state = await store.load()
    return StoredState(list(state.groups), list(state.members), list(state.offsets))


def member(name: str, **changes: object) -> StoredMember:
    return replace(MEMBER, member_id=name, **changes)  # type: ignore[arg-type]


async def test_a_group_and_its_members_come_back_as_they_were(store: MetadataGroupStore) -> None:
    static = member("b", group_instance_id="i", assignment=b"")
    empty = StoredGroup("e", "Empty", None, 0, None, None, 1_700_000_000_000)
    await store.persist([GroupChange(GROUP, (MEMBER, static)), GroupChange(empty)])
    assert await kept(store) == StoredState([GROUP, empty], [MEMBER, static], [])


async def test_a_change_saves_removes_and_replaces(store: MetadataGroupStore) -> None:
    await store.persist([GroupChange(GROUP, (member("a"), member("b"), member("c")))])
    newer = replace(GROUP, generation=4)
    await store.persist([GroupChange(newer, (member("a", assignment=b"new"),), ("b",))])
    state = await kept(store)
    assert state.groups == [newer]
    assert [(m.member_id, m.assignment) for m in state.members] == [("a", b"new"), ("c", b"\1")]
    await store.persist([GroupChange(newer, (member("d"),), ("zzz",), replace_members=True)])
    assert [m.member_id for m in (await kept(store)).members] == ["d"]


async def test_members_keep_the_order_in_which_they_came(store: MetadataGroupStore) -> None:
    for name in "zay":
        await store.persist([GroupChange(GROUP, (member(name),))])
    await store.persist([GroupChange(GROUP, (member("z", assignment=b"again"),))])
    assert [m.member_id for m in (await kept(store)).members] == ["z", "a", "y"]


async def test_offsets_come_back_and_go(store: MetadataGroupStore) -> None:
    one = CommittedOffset(2**62, 7, "näh\0", 1, -1)
    two = CommittedOffset(0, -1, "", 2, 3)
    await store.persist([OffsetsChange("g", [("t", 0, one), ("t", 1, two), ("t", 0, two)])])
    expected = [StoredOffset("g", "t", 0, two), StoredOffset("g", "t", 1, two)]
    assert (await kept(store)).offsets == expected
    await store.persist([OffsetsChange("g", [("t", 0, one)], [("t", 1), ("t", 9)])])
    assert (await kept(store)).offsets == [StoredOffset("g", "t", 0, one)]


async def test_a_large_commit_is_stored_whole(store: MetadataGroupStore) -> None:
    one = CommittedOffset(1, -1, "", 1, -1)
    await store.persist([OffsetsChange("g", [("t", p, one) for p in range(333)])])
    assert len(list((await store.load()).offsets)) == 333


async def test_a_deleted_group_takes_members_and_offsets_along(store: MetadataGroupStore) -> None:
    one = CommittedOffset(1, -1, "", 1, -1)
    other = replace(GROUP, group_id="h")
    await store.persist(
        [GroupChange(GROUP, (MEMBER,)), GroupChange(other), OffsetsChange("g", [("t", 0, one)])]
    )
    await store.persist([GroupDeleted("g")])
    assert await kept(store) == StoredState([other], [], [])
