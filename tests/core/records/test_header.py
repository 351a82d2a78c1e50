"""The 61 bytes in front of a batch."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.header import HEADER, HEADER_SIZE, read_header
from tests.core.records.samples import simple_batch


def test_the_header_has_61_bytes() -> None:
    assert HEADER_SIZE == 61


def test_every_field_is_read_from_its_place() -> None:
    fields = (1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert tuple(read_header(b"xx" + HEADER.pack(*fields), 2)) == fields


def test_a_header_that_is_cut_off_is_corrupt() -> None:
    batch, _ = simple_batch()
    for size in (0, 1, 60):
        with pytest.raises(BrokerError) as caught:
            read_header(batch[:size])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert read_header(batch[:61]).record_count == 10


def test_offsets_and_size_follow_from_the_fields() -> None:
    batch, header = simple_batch(10)
    header = header._replace(base_offset=100)
    assert (header.size, header.last_offset, header.next_offset) == (len(batch), 109, 110)


def test_the_last_sequence_wraps_after_the_largest_int32() -> None:
    _, header = simple_batch(10)
    assert header.last_sequence == -1
    assert header._replace(base_sequence=0).last_sequence == 9
    assert header._replace(base_sequence=2**31 - 10).last_sequence == 2**31 - 1
    assert header._replace(base_sequence=2**31 - 9).last_sequence == 0
    assert header._replace(base_sequence=2**31 - 1).last_sequence == 8


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (0, (0, 0, False, False, None)),
        (4, (4, 0, False, False, None)),
        (0x08, (0, 1, False, False, None)),
        (0x10 | 2, (2, 0, True, False, None)),
        (0x30, (0, 0, True, True, None)),
        (0x40, (0, 0, False, False, 77)),
    ],
)
def test_attribute_bits_mean_what_the_guide_says(
    attributes: int, expected: tuple[int, int, bool, bool, int | None]
) -> None:
    _, header = simple_batch()
    header = header._replace(attributes=attributes, base_timestamp=77)
    assert (
        header.codec,
        header.timestamp_type,
        header.is_transactional,
        header.is_control,
        header.delete_horizon,
    ) == expected
