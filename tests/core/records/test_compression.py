"""Four codecs: the output is the original input, and never more than allowed."""

from __future__ import annotations

import gzip
import os
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ErrorCode
from core.records.compression import CODECS, GZIP, LZ4, ZSTD, compress, decompress
from tests.core.records.samples import LIMIT, peak_memory_growth, refusal

REAL = (1, 2, 3, 4)
THEIR_DECODERS = {
    1: aiokafka_codec.gzip_decode,
    2: aiokafka_codec.snappy_decode,
    3: aiokafka_codec.lz4_decode,
    4: aiokafka_codec.zstd_decode,
}
THEIR_ENCODERS = {
    1: aiokafka_codec.gzip_encode,
    2: aiokafka_codec.snappy_encode,
    3: aiokafka_codec.lz4_encode,
    4: aiokafka_codec.zstd_encode,
}
TEXT = b"the quick brown fox jumps over the lazy dog " * 3000


@given(data=st.one_of(st.binary(max_size=2000), st.binary(max_size=20).map(lambda b: b * 5000)))
@settings(max_examples=60)
@pytest.mark.parametrize("codec", REAL)
def test_what_was_compressed_comes_out_again(codec: int, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed, len(data)) == data
    assert bytes(THEIR_DECODERS[codec](compressed)) == data
    assert decompress(codec, bytes(THEIR_ENCODERS[codec](data)), len(data)) == data


@pytest.mark.parametrize("codec", REAL)
def test_large_output_is_whole(codec: int) -> None:
    data = os.urandom(1 << 16) * 300
    assert decompress(codec, memoryview(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", REAL)
def test_the_limit_holds_to_the_byte(codec: int) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    error = refusal(lambda: decompress(codec, compressed, len(TEXT) - 1))
    assert error is not None
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.details["limit"] == len(TEXT) - 1


@pytest.mark.parametrize("codec", REAL)
def test_every_cut_is_seen(codec: int) -> None:
    compressed = compress(codec, TEXT)
    for size in {0, 1, 2, 5, 10, 15, 20, len(compressed) // 2, len(compressed) - 1}:
        error = refusal(lambda size=size: decompress(codec, compressed[:size], LIMIT))
        if codec == 2 and size >= 16 and error is None:
            continue  # a snappy stream may end between blocks
        assert error is not None, size
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", REAL)
def test_streams_in_a_row_are_one(codec: int) -> None:
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), LIMIT) == b"onetwo"
    error = refusal(lambda: decompress(codec, compress(codec, b"one") + b"\x01garbage after it", LIMIT))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", REAL)
def test_thousands_of_empty_streams_are_refused(codec: int) -> None:
    error = refusal(lambda: decompress(codec, compress(codec, b"") * 20_000, LIMIT))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


def test_thousands_of_empty_blocks_are_refused() -> None:
    zstd_frame = bytes.fromhex("28b52ffd0058")
    for codec, data in (
        (2, compress(2, b"") + b"\0\0\0\1\0" * 20_000),
        (4, zstd_frame + bytes(60_000) + b"\1\0\0"),
    ):
        error = refusal(lambda codec=codec, data=data: decompress(codec, data, LIMIT))
        assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
    assert decompress(4, zstd_frame + bytes(3_000) + b"\1\0\0", LIMIT) == b""


def test_unknown_codecs_are_named() -> None:
    for codec in (0, 5, 7):
        for call in (lambda c=codec: compress(c, b"x"), lambda c=codec: decompress(c, b"x", LIMIT)):
            error = refusal(call)
            assert error is not None and error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_names_are_those_of_the_topic_setting() -> None:
    assert CODECS == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def test_snappy_is_read_raw_and_in_frames_and_written_in_frames_of_32_kib() -> None:
    assert decompress(2, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT
    framed = compress(2, TEXT)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = struct.unpack_from(">i", framed, 16)[0]
    assert len(cramjam.snappy.decompress_raw(framed[20 : 20 + first])) == 32 * 1024


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 0])
def test_a_snappy_block_length_that_lies_is_refused(length: int) -> None:
    framed = bytearray(compress(2, TEXT))
    struct.pack_into(">i", framed, 16, length)
    error = refusal(lambda: decompress(2, framed, 2**40))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("said", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80" * 6, b"\xff" * 9])
def test_a_snappy_size_that_lies_is_refused_before_memory_is_taken(said: bytes) -> None:
    error = refusal(lambda: decompress(2, said + b"abc", 2**40))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


def test_lz4_is_written_as_javas_reader_needs_it() -> None:
    info = lz4.frame.get_frame_info(compress(3, TEXT))
    assert not info["block_linked"]
    assert info["content_size"] == 0
    assert info["block_size"] == 64 * 1024


def test_lz4_frames_of_other_writers_are_read() -> None:
    for linked in (True, False):
        for checksum in (True, False):
            data = lz4.frame.compress(
                TEXT, block_linked=linked, content_checksum=checksum, block_checksum=checksum
            )
            assert decompress(3, data, LIMIT) == TEXT


def test_an_lz4_content_size_that_lies_takes_no_memory() -> None:
    said, grown = peak_memory_growth(
        "import lz4.frame\n"
        "from core.records.compression import decompress\n"
        "data = bytearray(lz4.frame.compress(b'x' * 1000, store_size=True))\n"
        "import struct; struct.pack_into('<Q', data, 6, 2**40)\n"
        "---\n"
        "try: print(len(decompress(3, bytes(data), 2**26)))\n"
        "except Exception as error: print(error.code.name)\n"
    )
    assert said in ("1000", "CORRUPT_MESSAGE")
    assert grown < 8 << 20


def test_zstd_frames_with_and_without_their_size_and_checksum_are_read() -> None:
    for size in (True, False):
        for checksum in (True, False):
            writer = zstandard.ZstdCompressor(write_content_size=size, write_checksum=checksum).compressobj()
            data = writer.compress(TEXT) + writer.flush()
            assert decompress(4, data, LIMIT) == TEXT
            for cut in (1, 2, 4, 5):
                assert refusal(lambda data=data, cut=cut: decompress(4, data[:-cut], LIMIT)) is not None


def test_zstd_skippable_frames_are_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    assert decompress(4, skippable + compress(4, b"abc") + skippable, LIMIT) == b"abc"
    assert refusal(lambda: decompress(4, compress(4, b"abc") + skippable[:-1], LIMIT)) is not None


def test_gzip_of_any_level_and_with_a_name_is_read() -> None:
    for level in (0, 1, 9):
        assert decompress(1, gzip.compress(TEXT, level), LIMIT) == TEXT
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(b"abc")[10:]
    assert decompress(1, named, LIMIT) == b"abc"


def test_a_wrong_gzip_checksum_is_refused() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-8] ^= 1
    error = refusal(lambda: decompress(1, data, LIMIT))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
    assert zlib.decompressobj(31).decompress(gzip.compress(TEXT)) == TEXT


@given(data=st.data(), codec=st.sampled_from(REAL))
@settings(max_examples=300)
def test_mutated_data_is_decompressed_or_refused_and_nothing_else(data: st.DataObject, codec: int) -> None:
    compressed = bytearray(
        compress(codec, data.draw(st.binary(max_size=100)) * data.draw(st.integers(1, 50)))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    refusal(lambda: decompress(codec, compressed, LIMIT))


@given(data=st.binary(max_size=200), codec=st.sampled_from(REAL))
@settings(max_examples=200)
def test_random_data_is_decompressed_or_refused_and_nothing_else(data: bytes, codec: int) -> None:
    refusal(lambda: decompress(codec, data, LIMIT))
    refusal(lambda: decompress(codec, compress(codec, b"")[:10] + data, LIMIT))


MEGABYTE_FROM_A_GIGABYTE = {
    "gzip": (1, "c = zlib.compressobj(9, wbits=31)\nwrite, end = c.compress, c.flush"),
    "lz4": (
        3,
        "c = lz4.frame.LZ4FrameCompressor(block_size=7)\nout.append(c.begin())\nwrite, end = c.compress, c.flush",
    ),
    "zstd": (4, "c = zstandard.ZstdCompressor(level=3).compressobj()\nwrite, end = c.compress, c.flush"),
    "zstd that states its size": (
        4,
        "c = zstandard.ZstdCompressor(level=3).compressobj(size=1 << 30)\nwrite, end = c.compress, c.flush",
    ),
    "zstd with the largest window": (
        4,
        "p = zstandard.ZstdCompressionParameters(window_log=27)\n"
        "c = zstandard.ZstdCompressor(compression_params=p).compressobj()\nwrite, end = c.compress, c.flush",
    ),
    "snappy": (
        2,
        "block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))\n"
        "out.append(b'\\x82SNAPPY\\0\\0\\0\\0\\1\\0\\0\\0\\1')\n"
        "write = lambda data: len(block).to_bytes(4, 'big') + block\nend = bytes",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", MEGABYTE_FROM_A_GIGABYTE)
def test_a_gigabyte_from_a_megabyte_is_refused_within_64_mib(bomb: str) -> None:
    codec, start = MEGABYTE_FROM_A_GIGABYTE[bomb]
    said, grown = peak_memory_growth(
        "import zlib, zstandard, lz4.frame, cramjam\n"
        "from core.errors import BrokerError\n"
        "from core.records.compression import decompress\n"
        "out = []\n"
        f"{start}\n"
        "zeros = bytes(1 << 20)\n"
        "for _ in range(1024): out.append(write(zeros))\n"
        "data = b''.join(out) + end()\n"
        "---\n"
        f"try: print(len(decompress({codec}, data, 64 << 20)))\n"
        "except BrokerError as error: print(error.code.name)\n"
    )
    assert said in ("INVALID_RECORD", "CORRUPT_MESSAGE")
    # The library's own two megabytes: the window of such a frame is filled up to the limit before it is refused.
    assert grown <= (64 << 20) + (2 << 20 if "window" in bomb else 0)


@pytest.mark.parametrize("codec", REAL)
def test_what_is_allowed_takes_memory_for_itself_and_64_mib_more(codec: int) -> None:
    said, grown = peak_memory_growth(
        "from core.records.compression import compress, decompress\n"
        f"data = compress({codec}, bytes(60 << 20))\n"
        "---\n"
        f"print(len(decompress({codec}, data, 64 << 20)))\n"
    )
    assert said == str(60 << 20)
    assert 50 << 20 <= grown <= 128 << 20  # pages that only ever held zeros need not be resident


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (1, 6, 9, -1)), (LZ4, (9, 3, 12, 17)), (ZSTD, (-50, 1, 3, 19))]
)
def test_a_level_is_taken_and_all_of_them_are_read(codec: int, levels: tuple[int, ...]) -> None:
    data = b"".join(f'{{"user": {i * 7919 % 1000}, "name": "n{i % 37}"}}'.encode() for i in range(3000))
    sizes = []
    for level in levels:
        packed = compress(codec, data, level)
        assert bytes(decompress(codec, packed, len(data))) == data
        sizes.append(len(packed))
    if codec == GZIP:
        assert sizes[0] > sizes[1] > sizes[2]
        assert sizes[3] == sizes[1], "-1 is zlib's own level, 6"
    elif codec == LZ4:
        # As in Kafka: the default, 9, is the fast mode.
        assert sizes[0] == len(compress(codec, data)) > sizes[1] >= sizes[2] >= sizes[3]
    else:
        assert sizes[0] > sizes[1] > sizes[3]
