"""Both decoders over golden batches: equal to each other, and to what was written; equal refusals, too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.records.batch import build_batch, set_log_append_time
from core.records.message_set import encode_plain, wrap
from core.records.record import NewRecord
from pipeline.decode import columns as c
from pipeline.decode.decoder import Decoder, plain_batches
from pipeline.decode.native import native_batches
from pipeline.decode.walk import Place, walk
from pipeline.wire.errors import CorruptDataError

PLACE = Place("orders", 3)
ALL = tuple(c.ARROW_TYPES)
DECODERS: list[Decoder] = [plain_batches, native_batches]
END = 2**62

RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=st.none() | st.binary(max_size=300),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(
            tuple
        ),
        timestamp=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=20,
)


def decode(
    decoder: Decoder, data: bytes, start: int = 0, end: int = END, columns: tuple[str, ...] = ALL
) -> pa.Table:
    """The records of `data` as a table."""
    walked = walk(data, start, end, PLACE)
    found = pa.Table.from_batches(
        decoder(data, walked.found, start, end, PLACE, columns), schema=c.arrow_schema(columns)
    )
    found.validate(full=True)
    return found.combine_chunks()


@settings(deadline=None)
@given(
    st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_the_compiled_decoder_gives_what_the_plain_one_gives(
    written: list[tuple[list[NewRecord], int]], start: int, length: int
) -> None:
    data, base = b"", 0
    for records, codec in written:
        data += build_batch(records, now_ms=0, codec=codec, base_offset=base)
        base += len(records) + 2
    plain = decode(plain_batches, data, start, start + length)
    assert decode(native_batches, data, start, start + length).equals(plain)
    assert plain.num_rows == sum(
        start <= offset < start + length for offset in _offsets([len(records) for records, _ in written])
    )


def _offsets(counts: list[int]) -> list[int]:
    out, base = [], 0
    for count in counts:
        out += range(base, base + count)
        base += count + 2
    return out


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("codec", range(5))
def test_a_batch_of_every_codec_is_read(decoder: Decoder, codec: int) -> None:
    records = [
        NewRecord(key=b"k", value=None, timestamp=1_700_000_000_000, headers=(("a", b"1"), ("é", None))),
        NewRecord(value=b"v" * 1000, timestamp=1_700_000_000_001),
    ]
    found = decode(decoder, bytes(build_batch(records, now_ms=0, codec=codec, base_offset=7))).to_pylist()
    assert [(row["key"], row["value"], row["offset"]) for row in found] == [
        (b"k", None, 7), (None, b"v" * 1000, 8),
    ]  # fmt: skip
    assert (found[0]["topic"], found[0]["partition"], found[0]["timestampType"]) == ("orders", 3, 0)
    assert found[0]["timestamp"].timestamp() == 1_700_000_000
    assert found[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "é", "value": None}]
    assert found[1]["headers"] is None


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_time_of_the_broker_is_the_time_of_every_record(decoder: Decoder) -> None:
    data = build_batch([NewRecord(value=b"v", timestamp=5), NewRecord(value=b"w", timestamp=9)], now_ms=0)
    set_log_append_time(data, 0, 1_700_000_000_000)
    found = decode(decoder, bytes(data)).to_pylist()
    assert {(row["timestamp"].timestamp(), row["timestampType"]) for row in found} == {(1_700_000_000, 1)}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_old_formats_are_read_with_their_offsets_and_times(decoder: Decoder, magic: int, codec: int) -> None:
    messages = [(4, 1000, None, b"a"), (5, 2000, b"k", None)]
    inner = [(offset - 4 * magic, *rest) for offset, *rest in messages]
    data = (
        wrap(magic, codec, 0, 5, 2000, encode_plain(magic, 0, inner))  # type: ignore[arg-type]
        if codec
        else encode_plain(magic, 0, messages)
    )
    found = decode(decoder, data + bytes(build_batch([NewRecord(value=b"new")], now_ms=3000, base_offset=6)))
    rows = found.to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (4, None, b"a"), (5, b"k", None), (6, None, b"new"),
    ]  # fmt: skip
    assert [row["timestampType"] for row in rows] == ([0, 0, 0] if magic else [-1, -1, 0])
    assert [row["timestamp"].timestamp() for row in rows[:2]] == ([1.0, 2.0] if magic else [-0.001, -0.001])


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), ("headers",), ("timestamp", "topic")])
def test_columns_that_are_not_wanted_are_not_made(decoder: Decoder, columns: tuple[str, ...]) -> None:
    records = [NewRecord(key=b"k", value=b"v", timestamp=1, headers=(("a", b""),))]
    found = decode(decoder, bytes(build_batch(records, now_ms=0)), columns=columns)
    assert found.schema == c.arrow_schema(columns)
    assert found.to_pylist() == [
        {
            name: row
            for name, row in decode(decoder, bytes(build_batch(records, now_ms=0))).to_pylist()[0].items()
            if name in columns
        }
    ]


def _damaged(how: str) -> bytes:
    """A batch whose checksum is right and whose records are not."""
    from crc32c import crc32c

    data = bytearray(build_batch([NewRecord(value=b"value")] * 3, now_ms=0, base_offset=40))
    if how == "count":
        data[57:61] = (4).to_bytes(4, "big")
    elif how == "length":
        data[61] = 0xFE
    elif how == "offset":
        # The second record's offset delta: it stands where the first one's does, a record later.
        data[61 + data[61] // 2 + 1 + 3] = 0
    elif how == "huge count":
        data[57:61] = (2**31 - 1).to_bytes(4, "big")
    elif how == "tail":
        data += b"x"
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
    elif how == "codec":
        data[22] = 3
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("how", ["count", "length", "offset", "huge count", "tail", "codec"])
def test_what_cannot_be_read_is_refused_with_its_place_by_both_alike(how: str) -> None:
    said = set()
    for decoder in DECODERS:
        with pytest.raises(
            CorruptDataError, match="corrupt batch in topic orders, partition 3, offset 40"
        ) as caught:
            decode(decoder, _damaged(how))
        said.add(str(caught.value))
    assert len(said) == 1


@settings(deadline=None)
@given(st.data())
def test_no_damage_to_the_bytes_of_records_breaks_the_decoders(data: Any) -> None:
    """Random bytes with a right checksum: an error that both give, or equal rows."""
    from crc32c import crc32c

    records = data.draw(RECORDS)
    broken = bytearray(build_batch(records, now_ms=0, base_offset=3))
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(61, len(broken) - 1))] = data.draw(st.integers(0, 255))
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    results: list[Any] = []
    for decoder in DECODERS:
        try:
            results.append(decode(decoder, bytes(broken)))
        except CorruptDataError as error:
            results.append(str(error))
    assert type(results[0]) is type(results[1])
    assert results[0] == results[1] if isinstance(results[0], str) else results[0].equals(results[1])
