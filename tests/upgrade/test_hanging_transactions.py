"""A directory from before transactions whose logs have a batch with the bit of one: it is aborted once."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.log.producer_state import ProducerStates
from core.metadata.models import SCHEMA_REVISION
from core.records.batch import batches, build_batch
from core.records.header import read_header
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.upgrade.test_upgrade import unpack

ORDERS = TopicPartition("orders", 0)
SAMPLE = Path(__file__).parent / "samples" / "0010.tar.gz"
NOW = 1_700_000_000_000


def hang(data: Path) -> int:
    """Write what that release wrote for a batch with the bit: the batch, and a snapshot that does not tell it.

    Return its offset.
    """
    directory = data / "orders-0"
    path = max(directory.glob("*.log"))
    written = path.read_bytes()
    offset = list(batches(written))[-1][1].next_offset
    batch, plain = (
        build_batch(
            [NewRecord(value=b"hangs")],
            now_ms=NOW,
            producer_id=77,
            producer_epoch=0,
            base_sequence=0,
            transactional=bit,
        )
        for bit in (True, False)
    )
    struct.pack_into(">q", batch, 0, offset)
    path.write_bytes(written + batch)
    producers = ProducerStates(100)
    assert producers.decode(max(directory.glob("*.snapshot")).read_bytes(), 0)
    producers.update(read_header(plain), offset, 0)
    (directory / f"{offset + 1:020d}.snapshot").write_bytes(producers.encode())
    checkpoint = data / "recovery-point-offset-checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace(f"orders 0 {offset}\n", f"orders 0 {offset + 1}\n"))
    return offset


async def committed(data: Path, offset: int) -> tuple[list[bytes | None], int, int]:
    """What a start shows to readers of committed records from an offset on; the last stable offset and the end."""
    broker = Broker(Config(data_dir=data), ManualClock(NOW))
    await broker.open()
    try:
        got = await broker.records.read(ORDERS, offset, max_bytes=10_000, max_records=10)
        offsets = broker.partitions.offsets(ORDERS)
        return [one.value for one in got.records], offsets.last_stable_offset, offsets.log_end_offset
    finally:
        await broker.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_batch_of_no_transaction_is_aborted_by_the_first_start(tmp_path: Path, killed: bool) -> None:
    data = unpack(SAMPLE, tmp_path / "data")
    offset = hang(data)
    if killed:
        (data / ".kafka_cleanshutdown").unlink()
    for _ in range(2):
        # The marker has the offset after it, and there is one.
        assert await committed(data, offset) == ([], offset + 2, offset + 2)
    with closing(sqlite3.connect(data / "metadata.db")) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]


async def test_snapshots_are_kept_by_later_starts(tmp_path: Path) -> None:
    data = unpack(SAMPLE, tmp_path / "data")
    await committed(data, 0)
    before = sorted(data.glob("*/*.snapshot"))
    await committed(data, 0)
    assert before and before == sorted(data.glob("*/*.snapshot"))
