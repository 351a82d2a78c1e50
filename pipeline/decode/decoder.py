"""Which of the two decoders is used: the compiled one where it can be had, the plain one else.

They give the same; `SLUICE_SPARK_DECODER=plain` in the workers' environment chooses the plain one, to compare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

import pyarrow as pa

from core.records.header import Buffer
from pipeline.decode import plain
from pipeline.decode.machine import kernel
from pipeline.decode.native import NativeDecoder
from pipeline.decode.walk import Found, Place

ENVIRONMENT = "SLUICE_SPARK_DECODER"


class Decoder(Protocol):
    """Batches that `walk` found → Arrow batches of the records in [start, end), in order."""

    def __call__(
        self,
        data: Buffer,
        found: Sequence[Found],
        start: int,
        end: int,
        place: Place,
        columns: tuple[str, ...],
        /,
    ) -> Iterator[pa.RecordBatch]:
        """Raises CorruptDataError, naming topic, partition and offset."""


def plain_batches(
    data: Buffer, found: Sequence[Found], start: int, end: int, place: Place, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The plain decoder: one Arrow batch for each batch."""
    for one in found:
        batch = plain.record_batch(plain.rows(data, [one], place), start, end, place, columns)
        if batch is not None:
            yield batch


@cache
def decoder() -> Decoder:
    """The decoder of this process, made when the first range is read."""
    if os.environ.get(ENVIRONMENT) == "plain":
        return plain_batches
    compiled = kernel()
    return plain_batches if compiled is None else NativeDecoder(compiled)
