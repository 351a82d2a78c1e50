"""The record layout, byte by byte, as the protocol guide draws it. `test_record_codec` compares the two codecs."""

from __future__ import annotations

import pytest

from core.errors import ErrorCode
from core.records.record import Record
from core.records.record_codec_pure import decode_records_pure, encode_records_pure
from tests.core.records.samples import refusal, simple_batch

ALL = 2**63
HEADER = simple_batch(3)[1]._replace(base_offset=10, base_timestamp=1000, last_offset_delta=300)
# Length 12, attributes, timestamp +1, offset +300, key "ab", value null, one header "h" with null value.
WRITTEN = bytes.fromhex("18 00 02 d804 04 6162 01 02 02 68 01")


def test_a_record_is_written_as_the_guide_says() -> None:
    out = encode_records_pure(1000, [(300, 1001, b"ab", None, (("h", None),))])
    assert out[61:] == WRITTEN
    assert out[:61] == bytes(61)


def test_a_record_is_read_as_the_guide_says() -> None:
    header = HEADER._replace(record_count=1)
    assert list(decode_records_pure(header, WRITTEN, 0, ALL)) == [
        Record(310, 1001, 0, b"ab", None, (("h", None),))
    ]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("18 00 02 d804 04 6162 01 02 02 68", "ends in the middle"),
        ("1a 00 02 d804 04 6162 01 02 02 68 01", "length too large"),
        ("16 00 02 d804 04 6162 01 02 02 68 01", "length too small"),
        ("18 00 02 d804 04 6162 01 02 01 68 01", "a header without a name"),
        ("18 00 02 d804 04 6162 01 01 02 68 01", "a negative header count"),
        ("18 00 02 da04 04 6162 01 02 02 68 01", "an offset after the batch's last"),
        ("16 00 02 01 04 6162 01 02 02 68 01", "an offset before the batch's first"),
        ("18 00 02 d804 04 6162 01 02 02 68 01 00", "a byte too many"),
        ("18 00 ffffffffffffffffffff01 d804 04 6162 01 00", "a varint of eleven bytes"),
    ],
)
def test_what_is_not_a_record_is_refused(written: str, why: str) -> None:
    header = HEADER._replace(record_count=1)
    error = refusal(lambda: list(decode_records_pure(header, bytes.fromhex(written), 0, ALL)))
    assert error is not None, why
    assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_offsets_that_do_not_rise_are_refused() -> None:
    header = HEADER._replace(record_count=2)
    assert refusal(lambda: list(decode_records_pure(header, WRITTEN * 2, 0, ALL))) is not None
