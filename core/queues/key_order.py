"""Which records may be delivered if records of one key are delivered one at a time, in the order of their offsets.

The caller reads the keys of records in the order of their offsets and offers each with a 64-bit keyed hash. Two keys
with one hash only wait for each other. Nothing is stored: after a restart the caller begins at the start offset.
"""

from __future__ import annotations

from typing import Final

# How far the caller reads past the first record that waits for its key.
MAX_LOOK_AHEAD: Final = 20_000
MAX_LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024


class KeyOrder:
    """The keys of unsettled records of one share partition, from its start offset up to `scanned`."""

    def __init__(self, start: int) -> None:
        self.scanned = start
