"""The four codecs of Kafka, with a strict limit on the decompressed size.

Decompression is where a megabyte becomes a gigabyte. So nothing that the data says about its own size is
believed before it is checked, output is made in steps of `_STEP` bytes, and the limit is tested after each:
a bomb costs `_KEPT` bytes of memory, a real batch its own size. What each format allows, and clients send:

    1  gzip    RFC 1952, several members in a row
    2  snappy  raw, or in blocks as Java's snappy library frames them ("xerial"), also several such streams
    3  lz4     LZ4 frames, several in a row. Written with independent blocks of 64 KiB and without
               content size: Java's reader knows no others
    4  zstd    RFC 8878 frames, several in a row, skippable ones too

Levels are low unless a topic asks for another: a broker compresses once and is waited for; level 9 costs ten to
forty times as much for a few per cent. Functions here may be called from any thread.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error

import cramjam
import zstandard
from lz4 import frame as lz4_frame

from core.errors import BrokerError, ErrorCode
from core.records.header import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Codec numbers by the names that the topic setting `compression.type` uses."""

# Output of one step of a decompressor.
_STEP = 256 * 1024
# Output that is kept while it grows. What becomes larger is measured to its end first, without keeping it,
# and then made once more into one buffer of its size: joining steps would need twice that.
_KEPT = 16 * 1024 * 1024
# Input of one call of zlib, which copies the part that it has not used.
_GZIP_INPUT = 64 * 1024
# Members or frames in one batch. A client writes one; each costs a new decompressor.
_MAX_FRAMES = 1024
# Blocks inside a stream, which we walk over in Python. A zstd block becomes up to 128 KiB, a block of Java's
# snappy 32 KiB, so a real batch has some hundred; a megabyte of empty ones would take half a second.
_MAX_BLOCKS = 16_384
# zstd frames may ask for a window of up to 2 GiB. Level 22 of today's clients asks for 128 MiB.
_ZSTD_MAX_WINDOW = 128 * 1024 * 1024
# A decompressor keeps the largest window it has seen, so one that has seen more than the levels up to 19 use is
# not used again.
_ZSTD_KEPT_WINDOW = 8 * 1024 * 1024

_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
# Kafka's default level of lz4 is the fast mode, as its own writer has it; all others are of the high compression.
_LZ4_FAST = 9
_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
# Magic, version 1, lowest compatible version 1.
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
# Snappy's densest element copies 64 bytes for 3; a length beyond that, and a little for the start, is a lie.
_SNAPPY_MAX_RATIO = 22
_SNAPPY_SLACK = 64
_SNAPPY_LENGTH_BYTES = 5

_SKIPPABLE_MAGIC = 0x184D2A50
_FRAME_START = Struct("<II")
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3

_zstd = threading.local()


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed with the codec of this number (1–4), as the Java client's readers take it.

    `level` is one of Kafka's topic settings compression.*.level (KIP-390); None is a low one. Raises BrokerError
    UNSUPPORTED_COMPRESSION_TYPE for another number.
    """
    if codec == GZIP:
        compressor = zlib.compressobj(_GZIP_LEVEL if level is None else level, wbits=_GZIP_WRAPPER)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == LZ4:
        compressed: bytes = lz4_frame.compress(
            data,
            compression_level=0 if level in (None, _LZ4_FAST) else level,
            block_size=lz4_frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return compressed
    if codec == ZSTD:
        result: bytes = _zstd_compressor(_ZSTD_LEVEL if level is None else level).compress(data)
        return result
    raise _unknown(codec)


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """This thread's compressor. One of a high level holds many megabytes, so only the last one is kept."""
    if getattr(_zstd, "level", None) != level:
        _zstd.level, _zstd.compressor = level, zstandard.ZstdCompressor(level=level)
    compressor: zstandard.ZstdCompressor = _zstd.compressor
    return compressor


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """What `data`, written with the codec of this number (1–4), decompresses to; `max_bytes` at most.

    Raises BrokerError INVALID_RECORD beyond `max_bytes`, CORRUPT_MESSAGE for data that is damaged, cut short
    or followed by something else, UNSUPPORTED_COMPRESSION_TYPE for another number. It needs memory for `max_bytes`
    and 64 MiB at most, and less for data that it refuses.
    """
    view = memoryview(data)
    if codec == SNAPPY:
        return _decompress_snappy(view, max_bytes)
    steps = _STEPS.get(codec)
    if steps is None:
        raise _unknown(codec)
    kept: list[bytes] | None = []
    total = 0
    for chunk in steps(view):
        total += len(chunk)
        if total > max_bytes:
            raise _too_large(codec, len(data), max_bytes)
        if kept is not None:
            kept.append(chunk)
            if total > _KEPT:
                kept = None
    if kept is not None:
        return kept[0] if len(kept) == 1 else b"".join(kept)
    whole = bytearray(total)
    position = 0
    for chunk in steps(view):
        whole[position : position + len(chunk)] = chunk
        position += len(chunk)
    return whole


def _gzip_steps(data: memoryview) -> Iterator[bytes]:
    position = 0
    for _ in range(_MAX_FRAMES):
        member = zlib.decompressobj(_GZIP_WRAPPER)
        while not member.eof:
            given = data[position : position + _GZIP_INPUT]
            try:
                chunk = member.decompress(given, _STEP)
            except zlib.error as error:
                raise _damaged(GZIP, str(error)) from None
            position += len(given) - len(member.unconsumed_tail) - len(member.unused_data)
            if chunk:
                yield chunk
            elif not given and not member.eof:
                raise _damaged(GZIP, "it ends in the middle")
        if position == len(data):
            return
    raise _damaged(GZIP, f"it has more than {_MAX_FRAMES} members")


def _lz4_steps(data: memoryview) -> Iterator[bytes]:
    position = 0
    for _ in range(_MAX_FRAMES):
        context = lz4_frame.create_decompression_context()
        ended = False
        while not ended:
            try:
                chunk, used, ended = lz4_frame.decompress_chunk(context, data[position:], max_length=_STEP)
            except RuntimeError as error:
                raise _damaged(LZ4, str(error)) from None
            position += used
            if chunk:
                yield chunk
            elif not used and not ended:
                raise _damaged(LZ4, "it ends in the middle")
        if position == len(data):
            return
    raise _damaged(LZ4, f"it has more than {_MAX_FRAMES} frames")


def _zstd_steps(data: memoryview) -> Iterator[bytes]:
    window = _check_zstd_frames(data)
    if window > _ZSTD_KEPT_WINDOW:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    else:
        if not hasattr(_zstd, "decompressor"):
            _zstd.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        decompressor = _zstd.decompressor
    reader = decompressor.stream_reader(data, read_across_frames=True)
    try:
        while chunk := reader.read(_STEP):
            yield chunk
    except zstandard.ZstdError as error:
        raise _damaged(ZSTD, str(error)) from None


_STEPS: dict[int, Callable[[memoryview], Iterator[bytes]]] = {
    GZIP: _gzip_steps,
    LZ4: _lz4_steps,
    ZSTD: _zstd_steps,
}


def _check_zstd_frames(data: memoryview) -> int:
    """Walk over frames and blocks by their lengths: the library's reader takes a cut frame for its end.

    Return the largest window of a frame.
    """
    position, end, window, blocks = 0, len(data), 0, 0
    try:
        while position < end:
            magic, length = _FRAME_START.unpack_from(data, position)
            if magic & ~0xF == _SKIPPABLE_MAGIC:
                position += _FRAME_START.size + length
                continue
            frame = data[position:]
            parameters = zstandard.get_frame_parameters(frame)
            position += zstandard.frame_header_size(frame)
            window = max(window, parameters.window_size)
            last = False
            while not last:
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
                blocks += 1
                if kind == _RESERVED_BLOCK or blocks > _MAX_BLOCKS:
                    raise _damaged(ZSTD, f"block {blocks} is of an unknown kind, or one too many")
                position += 3 + (1 if kind == _RLE_BLOCK else size)
            position += 4 if parameters.has_checksum else 0
    except (IndexError, zstandard.ZstdError, struct_error) as error:
        raise _damaged(ZSTD, f"it ends in the middle or is none ({error})") from None
    if position != end or not end:
        raise _damaged(ZSTD, "it ends in the middle")
    return window


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    # One block at least: not every reader takes a stream without.
    for position in range(0, len(data) or 1, _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytearray:
    blocks: list[tuple[memoryview, int]] = []
    total = 0
    for block in _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else (data,):
        size = _snappy_length(block)
        total += size
        if total > max_bytes:
            raise _too_large(SNAPPY, len(data), max_bytes)
        blocks.append((block, size))
        if len(blocks) > _MAX_BLOCKS:
            raise _damaged(SNAPPY, f"it has more than {_MAX_BLOCKS} blocks")
    out = bytearray(total)
    target, position = memoryview(out), 0
    for block, size in blocks:
        try:
            written = cramjam.snappy.decompress_raw_into(block, target[position : position + size])
        except cramjam.DecompressionError as error:
            raise _damaged(SNAPPY, str(error)) from None
        if written != size:
            raise _damaged(SNAPPY, f"a block of {size} bytes gave {written}")
        position += size
    return out


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position, end = 0, len(data)
    while position < end:
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise _damaged(SNAPPY, "it ends in the middle")
            continue
        if end - position < _BLOCK_LENGTH.size:
            raise _damaged(SNAPPY, "it ends in the middle")
        length: int = _BLOCK_LENGTH.unpack_from(data, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= end - position:
            raise _damaged(SNAPPY, f"a block says it has {length} bytes, {end - position} are left")
        yield data[position : position + length]
        position += length


def _snappy_length(block: memoryview) -> int:
    """What a raw block says it decompresses to, as far as that is possible."""
    size = 0
    for index, byte in enumerate(block[:_SNAPPY_LENGTH_BYTES]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size > len(block) * _SNAPPY_MAX_RATIO + _SNAPPY_SLACK:
                raise _damaged(SNAPPY, f"{len(block)} bytes cannot become the {size} that they say")
            return size
    raise _damaged(SNAPPY, "a block does not say how long it is")


def _name(codec: int) -> str:
    return next(name for name, number in CODECS.items() if number == codec)


def _damaged(codec: int, why: str) -> BrokerError:
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The {_name(codec)} data of a batch is damaged: {why}.",
        codec=_name(codec),
    )


def _too_large(codec: int, size: int, max_bytes: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_RECORD,
        f"{size} bytes of {_name(codec)} data decompress to more than {max_bytes} bytes, the limit.",
        codec=_name(codec),
        limit=max_bytes,
    )


def _unknown(codec: int) -> BrokerError:
    return BrokerError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"There is no compression codec {codec}; there are 1 gzip, 2 snappy, 3 lz4 and 4 zstd.",
    )
