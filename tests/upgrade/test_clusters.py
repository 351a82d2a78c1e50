"""The data directory of a broker of a cluster whose metadata log has the text of statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from core.metadata.statements import STATEMENTS
from core.records.batch import batches, read_records
from core.vocabulary.replicas import METADATA
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.test_metadata import promote, tables
from tests.upgrade.make_cluster_sample import ALICE
from tests.upgrade.test_upgrade import unpack

SAMPLE = Path(__file__).parent / "clusters" / "0008-texts.tar.gz"
FOREVER: dict[str, Any] = {
    "super_users": ("User:ANONYMOUS",),
    "idempotency_ttl_ms": 10**13,
    "offsets_retention_ms": 10**13,
}


def texts_in(directory: Path) -> set[str]:
    """The statements of the metadata log."""
    found = set()
    for path in directory.glob("*cluster_metadata*/*.log"):
        data = memoryview(path.read_bytes())
        for position, header in batches(data):
            for record in read_records(data, position, header, max_bytes=1 << 20):
                found |= {text for text, _ in msgspec.msgpack.decode(record.value or b"")}
    return found


async def test_a_new_broker_repeats_a_log_of_texts_to_the_same_database(tmp_path: Path) -> None:
    old = texts_in(unpack(SAMPLE, tmp_path / "1"))
    known = {one.text for one in STATEMENTS.values()}
    assert len(old & known) >= 28 and all(text.startswith("INSERT OR REPLACE") for text in old - known - {""})
    async with Brokers(tmp_path, **FOREVER) as two:
        end = two[1].partitions.info(METADATA).offsets.log_end_offset
        await until(lambda: two[2].metadata._applied == end)  # type: ignore[union-attr]
        assert await tables(two[1]) == await tables(two[2])
        await two.create("written.by.name")
        await promote(two, 2)
        assert [topic.name for topic in two[2].topics.list()] == ["orders", "written.by.name"]
        assert [user.name for user in two[2].users.all()] == ["alice"]
        assert ALICE in two[2].authorizer and len(two[2].authorizer) == 1
        found = two[2].groups.committed("readers", "orders", 0)
        assert found is not None and found.offset == 1
