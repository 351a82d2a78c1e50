"""Convert stored batches for clients of Fetch below version 10, to a format that their version knows.

Fetch v0–1 get message sets of magic 0, v2–3 of magic 1, and v4–9 batches without zstd, which came with v10. A
conversion is bytes in, bytes out, so a large one runs in a thread and does not block the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct

from core.broker.broker import Broker
from core.errors import BrokerError
from core.listeners.kafka.produce_conversion import Conversions
from core.protocol.traits import fetch_cuts_every_partition, fetch_magic, knows_zstd
from core.records.batch import batches
from core.records.conversion import down_convert, without_zstd
from core.records.header import MAGIC
from core.records.message_set import ENTRY_OVERHEAD
from core.types import AbortedTransaction, LogRead
from core.vocabulary.records import Fetched, FetchRead

# Offset and size of a message.
_ENTRY = Struct(">qi")


class FetchConversion:
    """The format of one Fetch request, and how much of its answer has been converted so far."""

    def __init__(self, broker: Broker, conversions: Conversions, version: int) -> None:
        self.broker = broker
        self._conversions = conversions
        self.magic = fetch_magic(version)
        self.cuts_first = fetch_cuts_every_partition(version)
        self.needed = self.magic < MAGIC or not knows_zstd(1, version)
        self._converted = 0

    async def convert(self, reads: list[FetchRead], fetched: list[Fetched]) -> list[bytes | BrokerError]:
        """Return the converted records of each partition, or the error that stopped the conversion.

        Sets of magic 0 and 1 are cut at the limit of the partition. Refusals and empty reads give no bytes.
        """
        answers: list[bytes | BrokerError] = []
        for read, got in zip(reads, fetched, strict=True):
            try:
                answers.append(await self._partition(read, got))
            except BrokerError as error:
                answers.append(error)
        return answers

    async def _partition(self, read: FetchRead, got: Fetched) -> bytes:
        """Convert one partition; continue after batches that have no record for the client."""
        wanted = max(read.max_bytes, 0)
        while got.read is not None and got.read.slice is not None:
            converted, next_offset = await self._slice(got.read, read.offset, wanted)
            if converted:
                return converted if self.magic == MAGIC else self._cut(converted, wanted)
            read_on = FetchRead(read.tp, next_offset, max(wanted, 1), committed=read.committed)
            (got,), _, _, _ = self.broker.partitions.fetch_now(
                [read_on], max_bytes=self.broker.config.fetch_max_bytes
            )
        return b""

    def _cut(self, converted: bytes, wanted: int) -> bytes:
        """Return the set up to the limit, cut at any byte; the first message is whole where the version says so."""
        if not self.cuts_first:
            wanted = max(wanted, _ENTRY.unpack_from(converted)[1] + ENTRY_OVERHEAD)
        return converted[:wanted]

    async def _slice(self, read: LogRead, offset: int, wanted: int) -> tuple[bytes, int]:
        config, stored = self.broker.config, read.slice
        assert stored is not None
        convert = partial(_convert, self.magic, offset, wanted, config.max_decompressed_bytes, read.aborted)
        self._converted += stored.length
        if self._converted <= config.convert_on_loop_bytes:
            data = stored.read()
            if not any(header.codec for _, header in batches(data)):
                return convert(data)
        return await self._conversions.run(lambda: convert(stored.read()))


def _convert(
    magic: int,
    offset: int,
    wanted: int,
    max_decompressed_bytes: int,
    aborted: Sequence[AbortedTransaction],
    data: bytes,
) -> tuple[bytes, int]:
    """Return the converted batches and the offset to continue at."""
    if magic == MAGIC:
        return without_zstd(data, max_bytes=max_decompressed_bytes), offset
    converted = down_convert(
        data,
        magic,
        first_offset=offset,
        max_bytes=max_decompressed_bytes,
        wanted_bytes=wanted,
        aborted=aborted,
    )
    next_offset = max(header.next_offset for _, header in batches(data)) if not converted else offset
    return converted, next_offset
