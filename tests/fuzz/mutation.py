"""Bytes that are nearly right: cut, flipped, spliced, doubled, with numbers that announce too much."""

from __future__ import annotations

import random
from collections.abc import Sequence

# What lengths and counts should not be.
_NUMBERS = (0, 1, -1, -2, 127, 128, 255, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**32 - 1, 10**6, 10**9)
_WORDS = (
    b"\x00", b"\xff", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"|", b"\r\n", b"\n\n", b"{", b"[" * 40, b'"',
    b"NaN", b"\\ud800", b"1e999", b"-0", b"null", b"..", b"%00", b"%2F", b"\xc3\x28", b"\xed\xa0\x80", b":", b" ",
)  # fmt: skip
MAX_BYTES = 20_000


def mutate(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One to four changes to `data`; pieces may come from `others`. At most `MAX_BYTES`."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        chance.choice(_CHANGES)(changed, others, chance)
    return bytes(changed[:MAX_BYTES])


def _place(data: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(data) + 1)


def _flip(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _cut(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _remove(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 4, 8, 30))]


def _double(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = _place(data, chance)
    piece = data[at : at + chance.choice((1, 4, 16, 64, 256))]
    data[at:at] = piece * chance.choice((1, 1, 2, 20))


def _number(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    size = chance.choice((1, 2, 4, 4, 8))
    number = chance.choice(_NUMBERS) & ((1 << 8 * size) - 1)
    at = _place(data, chance)
    data[at : at + size] = number.to_bytes(size, chance.choice(("big", "big", "little")))  # type: ignore[arg-type]


def _word(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = _place(data, chance)
    data[at : at + chance.choice((0, 1, 4))] = chance.choice(_WORDS)


def _splice(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(others)
    at, start = _place(data, chance), chance.randrange(len(other) + 1)
    data[at:] = other[start:]


_CHANGES = (_flip, _flip, _set, _cut, _remove, _double, _number, _number, _word, _splice)
