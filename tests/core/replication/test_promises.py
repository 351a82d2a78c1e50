"""What a broker has promised is on the disk before another broker learns it, and comes back."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.replication.promises import Promises, decode, encode
from core.replication.replica import Remembered
from core.types import TopicPartition

TP, ID = TopicPartition("t", 3), uuid.UUID(int=7)


async def test_what_was_noted_comes_back_after_a_save(tmp_path: Path) -> None:
    memory = Promises(f"{tmp_path}/roles")
    memory.load()
    memory.note(TP, ID, Remembered(34, 1, -1))
    await memory.save()
    again = Promises(f"{tmp_path}/roles")
    again.load()
    assert again.of(TP, ID) == Remembered(34, 1, -1)
    assert again.of(TP, uuid.UUID(int=8)) is None, "a topic that got the name later has promised nothing"


async def test_writers_that_wait_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, writes = Promises(f"{tmp_path}/roles"), []
    real = files.write_whole
    monkeypatch.setattr(files, "write_whole", lambda *a, **k: (writes.append(k), real(*a, **k)))

    async def promise(number: int) -> None:
        memory.note(TopicPartition("t", number), ID, Remembered(number, 0, 0))
        await memory.save()

    await asyncio.gather(*(promise(number) for number in range(50)))
    assert 1 <= len(writes) <= 2
    assert all(write["durable"] for write in writes)
    memory.note(TP, ID, Remembered(3, 0, 0))
    await memory.save()
    assert len(writes) <= 2, "nothing has changed"


async def test_a_disk_that_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    memory = Promises(f"{tmp_path}/roles")
    memory.note(TP, ID, Remembered(34, 1, -1))
    monkeypatch.setattr(files, "write_whole", refuse)
    with pytest.raises(BrokerError) as refused:
        await memory.save()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    await memory.save()
    assert decode(Path(f"{tmp_path}/roles").read_bytes())[TP][1].epoch == 34


async def test_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    memory = Promises(f"{tmp_path}/roles")
    memory.note(TP, ID, Remembered(34, 1, -1))
    memory.forget("t")
    assert memory.of(TP, ID) is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_file_is_no_file(cut: int) -> None:
    data = encode({TP: (ID, Remembered(34, 1, -1)), TopicPartition("u", 0): (ID, Remembered(2, 2, 0))})
    with pytest.raises(ValueError):
        decode(data[:-cut])
