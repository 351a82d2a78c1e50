"""First version; the bounded one follows."""

from __future__ import annotations

from core.records.header import Buffer


def compress(codec: int, data: Buffer) -> bytes:
    """`data` compressed."""
    raise NotImplementedError


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """`data` decompressed."""
    raise NotImplementedError
