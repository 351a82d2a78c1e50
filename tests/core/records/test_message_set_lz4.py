"""The wrong header checksum of LZ4 frames in magic 0."""

from __future__ import annotations

import lz4.frame
import pytest
from kafka.codec import lz4_decode

from core.errors import ErrorCode
from core.records.compression import compress
from core.records.message_set_lz4 import break_checksum, mend_checksum
from tests.core.records.samples import refusal

TEXT = b"all work and no play makes jack a dull boy " * 50


def test_a_frame_is_broken_and_mended() -> None:
    frame = compress(3, TEXT)
    broken = break_checksum(frame)
    assert broken != frame
    assert len(broken) == len(frame)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(broken)
    assert mend_checksum(broken) == frame
    assert mend_checksum(frame) == frame
    assert lz4_decode(mend_checksum(broken)) == TEXT


def test_the_broken_checksum_is_the_one_that_kip_57_describes() -> None:
    # A frame of 64 KiB blocks with neither sizes nor content checksum: FLG 60, BD 40.
    assert break_checksum(bytes.fromhex("04224d186040ff"))[-1:] == b"\x1a"
    assert mend_checksum(bytes.fromhex("04224d186040ff"))[-1:] == b"\x82"


def test_frames_that_state_their_size_are_mended_too() -> None:
    frame = lz4.frame.compress(TEXT, store_size=True)
    assert mend_checksum(break_checksum(frame)) == frame


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x04\x22\x4d\x18",
        b"\x04\x22\x4d\x18\x60\x40",
        b"x" * 30,
        b"\x04\x22\x4d\x18\x68" + b"\0" * 9,
        b"\x04\x22\x4d\x18\x61" + b"\0" * 9,
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    for change in (mend_checksum, break_checksum):
        error = refusal(lambda change=change: change(data))
        assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
