"""core.metadata.idempotency: rows in, rows out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.metadata.idempotency import (
    COMPRESS_FROM,
    KeyRow,
    bind,
    find,
    load_open,
    put_answer,
    put_places,
    remove,
    remove_oldest,
    totals,
)
from core.metadata.store import Store

A, B, C = (name * 32 for name in (b"a", b"b", b"c"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "metadata.db")
    await opened.open(check=False)
    yield opened
    await opened.close()


async def put(store: Store, digest: bytes, now_ms: int, answer: bytes | None = None) -> None:
    assert await store.read(bind(digest, b"f" * 32, b"plan", now_ms=now_ms, expired_ms=0)) is None
    if answer is not None:
        await store.submit([put_answer(digest, answer)])


async def test_the_first_binding_of_a_key_holds(store: Store) -> None:
    await put(store, A, 100)
    second = await store.read(bind(A, b"g" * 32, b"other", now_ms=200, expired_ms=100))
    assert second == KeyRow(b"f" * 32, b"plan", b"", None)
    assert await store.read(find(A, expired_ms=100)) == second
    assert await store.read(find(B, expired_ms=0)) is None


async def test_an_expired_key_is_bound_again_without_its_past(store: Store) -> None:
    await put(store, A, 100, b"answer")
    await store.submit([put_places([(A, b"places")])])
    assert await store.read(find(A, expired_ms=101)) is None
    assert await store.read(bind(A, b"g" * 32, b"new", now_ms=300, expired_ms=101)) is None
    assert await store.read(find(A, expired_ms=101)) == KeyRow(b"g" * 32, b"new", b"", None)


@pytest.mark.parametrize("size", [0, 1, COMPRESS_FROM - 1, COMPRESS_FROM, 100_000])
async def test_answers_of_every_size_come_back(store: Store, size: int) -> None:
    answer = (b"0123456789" * 10_000)[:size]
    await put(store, A, 1, answer)
    row = await store.read(find(A, expired_ms=0))
    assert row is not None and row.answer == answer
    assert (await store.read(totals)).size < COMPRESS_FROM + 300


async def test_open_keys_are_those_without_an_answer(store: Store) -> None:
    await put(store, A, 1)
    await put(store, B, 2, b"answer")
    await put(store, C, 3)
    await store.submit([put_places([(C, b"places")])])
    assert sorted(await store.read(load_open)) == [(A, b"plan", b""), (C, b"plan", b"places")]
    await store.submit([remove(A)])
    assert await store.read(load_open) == [(C, b"plan", b"places")]


async def test_the_oldest_go_first_and_open_ones_only_when_they_expire(store: Store) -> None:
    await put(store, A, 1)
    await put(store, B, 2, b"answer")
    await put(store, C, 3, b"answer")
    assert await store.read(remove_oldest(before_ms=10, expired_ms=0, limit=1)) == 1
    assert await store.read(find(B, expired_ms=0)) is None
    assert (await store.read(totals)).keys == 2
    assert await store.read(remove_oldest(before_ms=2, expired_ms=2)) == 1
    assert await store.read(find(A, expired_ms=0)) is None
    assert await store.read(remove_oldest(before_ms=3, expired_ms=3)) == 0


async def test_looking_at_keys_never_reads_the_whole_table(store: Store) -> None:
    queries = {
        "SELECT count(*), coalesce(sum(size), 0) FROM idempotency_keys": "COVERING INDEX",
        "SELECT digest, plan, places FROM idempotency_keys WHERE answer IS NULL": "idempotency_keys_open",
        "SELECT rowid FROM idempotency_keys WHERE created_ms < 5 AND (answer IS NOT NULL OR created_ms < 3)"
        " ORDER BY created_ms LIMIT 10": "idempotency_keys_by_age",
        "SELECT plan FROM idempotency_keys WHERE digest = x'00' AND created_ms >= 3": "digest=",
    }
    for query, wanted in queries.items():
        steps = await store.read(
            lambda c, q=query: [r[3] for r in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {q}").all()]  # type: ignore[misc]
        )
        assert any(wanted in step for step in steps), (query, steps)
