"""What one frame may hold at most, beyond the length that the listener checks.

A length or a count is first compared with the bytes that are left, so nothing is allocated for what is not
there. These limits are for what is legal by size and still absurd: a frame of 100 MB could otherwise hold
50 million empty strings, each of which costs a Python object.
"""

from __future__ import annotations

MAX_ELEMENTS = 100_000
"""Array elements and tagged fields in one request, all arrays together: as many topics as one Metadata request may
name (`max_topics_per_request`). This many of the smallest elements cost 8 MB and 30 ms."""

MAX_TAGS = 1_000
"""Tagged fields in one section. Kafka's own messages have fewer than ten."""

MAX_STRING = 0x7FFF
"""Bytes of one string: what the int16 length of the older encodings can say."""

MAX_BYTES = 8 * 1024 * 1024
"""Bytes of one field that is copied out of its frame: member metadata, assignments, SASL, metrics. What a
member may keep is far less (`group_max_member_bytes`); records are not copied and not limited here."""
