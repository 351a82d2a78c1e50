"""The wrong header checksum of LZ4 frames in messages of magic 0 (KIP-57).

    LZ4 frame = magic 04 22 4d 18, FLG, BD, [content size 8 bytes if FLG bit 3], HC, blocks …

HC is the second byte of the XXH32 hash of what lies between magic and HC. Kafka's first Java code hashed the magic
too. Clients of magic 0 write that, and some check for it; readers of the format elsewhere refuse it.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode

_MAGIC = b"\x04\x22\x4d\x18"
_FLG_AT = 4
_CONTENT_SIZE_BIT = 0x08
_DICTIONARY_BIT = 0x01
_UINT32 = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1


def mend_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that the LZ4 format wants, whatever it had.

    Raises BrokerError CORRUPT_MESSAGE for what does not begin like a frame.
    """
    at = _checksum_at(frame)
    return frame[:at] + _checksum(frame[_FLG_AT:at]) + frame[at + 1 :]


def break_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that clients of magic 0 want."""
    at = _checksum_at(frame)
    return frame[:at] + _checksum(frame[:at]) + frame[at + 1 :]


def _checksum_at(frame: bytes) -> int:
    if frame[:_FLG_AT] == _MAGIC and len(frame) > _FLG_AT:
        flags = frame[_FLG_AT]
        at = _FLG_AT + 2 + (8 if flags & _CONTENT_SIZE_BIT else 0)
        # LZ4 got dictionaries only after magic 0 was no longer used.
        if at < len(frame) and not flags & _DICTIONARY_BIT:
            return at
    raise BrokerError(
        ErrorCode.CORRUPT_MESSAGE, "The lz4 data of a message does not begin with an LZ4 frame."
    )


def _checksum(header: bytes) -> bytes:
    return bytes((_xxh32(header) >> 8 & 0xFF,))


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is all that a frame header has."""
    value = _PRIME_5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value += int.from_bytes(data[at : at + 4], "little") * _PRIME_3
        value = _rotate(value & _UINT32, 17) * _PRIME_4
    for byte in data[whole:]:
        value += byte * _PRIME_5
        value = _rotate(value & _UINT32, 11) * _PRIME_1
    value &= _UINT32
    value = (value ^ value >> 15) * _PRIME_2 & _UINT32
    value = (value ^ value >> 13) * _PRIME_3 & _UINT32
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _UINT32
