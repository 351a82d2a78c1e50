"""The statements on groups: rows in, rows out, in any number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.metadata import groups
from core.metadata.store import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "m.db")
    await opened.open(check=False)
    yield opened
    await opened.close()


def offset(partition: int, value: int = 1, group: str = "g") -> groups.Row:
    return (group, "t", partition, value, -1, "", 0, -1)


@pytest.mark.parametrize("count", [0, 1, 2, 49, 50, 51, 100, 101])
async def test_offsets_are_put_and_removed_in_any_number(store: Store, count: int) -> None:
    await store.submit([groups.put_offsets([offset(p) for p in range(count)])])
    await store.submit([groups.put_offsets([offset(p, 2) for p in range(count)])])
    _, _, offsets = await store.read(groups.load_groups)
    assert [tuple(row) for row in offsets] == [offset(p, 2) for p in range(count)]
    await store.submit([groups.remove_offsets("g", [("t", p) for p in range(count)])])
    assert (await store.read(groups.load_groups))[2] == []


async def test_a_group_is_forgotten_with_all_that_is_its_own(store: Store) -> None:
    for group in "gh":
        await store.submit(
            [
                groups.put_group((group, "Stable", "consumer", 1, "range", "m", -1)),
                groups.put_members([(group, "m", None, "c", "/h", 1, 2, b"", b"")]),
                groups.put_offsets([offset(0, group=group)]),
            ]
        )
    await store.submit([groups.remove_group("g")])
    assert [[row[0] for row in rows] for rows in await store.read(groups.load_groups)] == [["h"]] * 3


async def test_members_are_removed_by_name_or_all_together(store: Store) -> None:
    rows = [("g", name, None, "c", "/h", 1, 2, b"", b"") for name in "abc"]
    await store.submit([groups.put_members(rows), groups.remove_members("g", ["a", "nobody"])])
    assert [row[1] for row in (await store.read(groups.load_groups))[1]] == ["b", "c"]
    await store.submit([groups.remove_all_members("g")])
    assert (await store.read(groups.load_groups))[1] == []
