"""Choose one of the two decoders: the compiled one if it is available, otherwise the plain one.

They give the same; `SLUICE_SPARK_DECODER=plain` in the workers' environment chooses the plain one, to compare.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

import pyarrow as pa

from core.records.header import Buffer
from pipeline.decode import plain
from pipeline.decode.walk import Found, Place

logger = logging.getLogger(__name__)

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
    """Return the decoder of this process: the compiled one where the package was built with it."""
    if os.environ.get(ENVIRONMENT) == "plain":
        return plain_batches
    try:
        from pipeline.decode.native import native_batches
    except ImportError:
        logger.info(
            "the package was built without its C extension; records are decoded by Python, more slowly"
        )
        return plain_batches
    return native_batches
