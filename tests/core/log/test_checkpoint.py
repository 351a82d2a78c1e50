"""The small text files: Kafka's bytes, and nothing believed that is not whole."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from core.log.checkpoint import (
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    read_offsets,
    read_topic_id,
)
from core.types import TopicPartition

OFFSETS = {TopicPartition("orders", 0): 17, TopicPartition("a.b_c-d", 12): 2**60}
TEXT = b"0\n2\norders 0 17\na.b_c-d 12 1152921504606846976\n"


def test_offsets_are_written_as_kafka_does() -> None:
    assert encode_offsets(OFFSETS) == TEXT
    assert decode_offsets(TEXT) == OFFSETS
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"0\n0\n") == {}


def test_epochs_are_written_as_kafka_does() -> None:
    assert encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


@pytest.mark.parametrize("data", [TEXT[:i] for i in range(len(TEXT))])
def test_a_torn_checkpoint_is_told_from_a_whole_one(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_offsets(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 40, b"1\n0\n", b"0\n1\norders 0\n", b"0\n1\norders 0 -5\n", b"0\n1\norders x 5\n",
        b"0\n1\norders 0 5 6\n", b"0\n2\norders 0 5\n", "0\n1\norders ٣ 5\n".encode(), b"0\n1\n\xff 0 5\n",
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_not_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    assert read_offsets(str(path)) is None
    with pytest.raises(ValueError, match=r"."):
        decode_epochs(data)


@pytest.mark.parametrize("data", [b"0\n2\n3 0\n3 5\n", b"0\n2\n3 5\n4 2\n"])
def test_epochs_must_rise(data: bytes) -> None:
    with pytest.raises(ValueError, match="rise"):
        decode_epochs(data)


def test_a_missing_checkpoint_is_none(tmp_path: Path) -> None:
    assert read_offsets(str(tmp_path / "nothing")) is None


def test_the_topic_id_is_written_as_kafka_prints_it(tmp_path: Path) -> None:
    topic_id = uuid.UUID("b8f4d0c2-6a51-4e0e-9a39-3d1d2f0c5e77")
    path = tmp_path / "partition.metadata"
    path.write_bytes(encode_partition_metadata(topic_id))
    assert path.read_text() == "version: 0\ntopic_id: uPTQwmpRTg6aOT0dLwxedw"
    assert read_topic_id(str(path)) == topic_id


@pytest.mark.parametrize(
    "text",
    ["", "version: 0\n", "version: 0\ntopic_id: short", "\0" * 30, "topic_id", "version: 0\ntopic_id: ///"],
)
def test_a_metadata_file_that_cannot_be_read_has_no_topic_id(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    assert read_topic_id(str(path)) is None
    assert read_topic_id(str(tmp_path / "nothing")) is None
