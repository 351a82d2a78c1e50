"""core.metadata.consumers: rows in, rows out."""

from __future__ import annotations

from pathlib import Path

from core.metadata.consumers import (
    load_consumers,
    put_consumer,
    put_positions,
    put_progress,
    remove_consumer,
    remove_positions,
)
from core.metadata.models import consumers
from core.metadata.statements import PROGRESS_COLUMNS
from core.metadata.store import Store


def row(name: str, sequence: int = 1) -> tuple[object, ...]:
    return ("g", name, "nonce", b"s", b"o", 5, "m", 2, sequence, b"[]", b"p", 99)


async def test_rows_come_back_as_they_were_put(tmp_path: Path) -> None:
    store = Store(tmp_path / "metadata.db")
    await store.open(check=False)
    assert len(row("a")) == len(consumers.columns)
    await store.submit([put_consumer(row("a")), put_consumer(row("b"))])
    await store.submit([put_consumer(row("a", sequence=7))])
    positions = [("g", name, "t", p, p * 10) for name in ("a", "b") for p in range(3)]
    await store.submit([put_positions(positions), remove_positions("g", "a", [("t", 1)])])
    await store.submit([put_positions([("g", "a", "t", 0, 42)])])
    rows, kept = await store.read(load_consumers)
    assert sorted(rows) == [row("a", sequence=7), row("b")]
    assert sorted(kept)[:2] == [("g", "a", "t", 0, 42), ("g", "a", "t", 2, 20)]
    await store.submit([remove_consumer("g", "b")])
    rows, kept = await store.read(load_consumers)
    assert rows == [row("a", sequence=7)] and len(kept) == 2
    await store.close()


async def test_progress_changes_its_columns_and_makes_no_consumer(tmp_path: Path) -> None:
    store = Store(tmp_path / "metadata.db")
    await store.open(check=False)
    values = ("m2", 3, 4, b"[1]", b"p2", 100)
    assert len(values) == len(PROGRESS_COLUMNS)
    await store.submit([put_progress("g", "a", values)])
    assert (await store.read(load_consumers))[0] == []
    await store.submit([put_consumer(row("a")), put_progress("g", "a", values)])
    assert (await store.read(load_consumers))[0] == [(*row("a")[:6], *values)]
    await store.close()
