"""What one frame may hold at most, beyond the length that the listener checks.

A length or a count is first compared with the bytes that are left, so nothing is allocated for what is not
there. These limits are for what is legal by size and still absurd: a frame of 100 MB could otherwise hold
50 million empty strings, each of which costs a Python object.
"""

from __future__ import annotations

MAX_ELEMENTS = 250_000
"""Array elements and tagged fields in one request, all arrays together; a consumer of every partition that
one broker may have (`max_partitions`, 200,000) stays below it."""

MAX_TAGS = 1_000
"""Tagged fields in one section. Kafka's own messages have fewer than ten."""

MAX_STRING = 0x7FFF
"""Bytes of one string: what the int16 length of the older encodings can say."""
