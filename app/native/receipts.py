"""Receipts and leases of queues as text: opaque for clients, short, and the same after a restart.

    5f3a9c01.7f.Jb0lSDG3QkmnvGJHTUrkcA.0.29     a receipt: nonce, lease, topic id, partition, offset
    7f                                          a lease

The nonce of a partition changes when the queue is deleted or sought, or the topic is created again. So a receipt
cannot name another record than the one that was delivered. Whether it is valid is for the broker to say.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from uuid import UUID

from core.vocabulary.queues import Receipt

# Numbers of 64 bits and a topic id of 128, without signs.
_PREFIX = re.compile(r"([0-9a-f]{1,16})\.([0-9a-f]{1,16})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{1,8})")
_DIGITS = 16
_LEASE = re.compile(r"[0-9a-f]{1,16}")
_MAX_PARTITION, _MAX_OFFSET = 2**31 - 1, 2**63 - 1
# The longest text of a receipt.
MAX_RECEIPT = 16 + 16 + 22 + 8 + 16 + 4


@lru_cache(maxsize=1024)
def _id_text(topic_id: UUID) -> str:
    return urlsafe_b64encode(topic_id.bytes).decode()[:22]


@lru_cache(maxsize=1024)
def _id_of(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def receipt_prefix(receipt: Receipt) -> str:
    """Return the text of a receipt without its offset; records of one partition in one lease share it."""
    nonce, lease, topic_id, partition, _ = receipt
    return f"{nonce:x}.{lease:x}.{_id_text(topic_id)}.{partition:x}."


def receipt_text(receipt: Receipt) -> str:
    """Return a receipt as text."""
    return f"{receipt_prefix(receipt)}{receipt.offset:x}"


@lru_cache(maxsize=1024)
def _prefix_of(text: str) -> tuple[int, int, UUID, int] | None:
    """Return what a receipt says before its offset; receipts that are settled together share it."""
    found = _PREFIX.fullmatch(text)
    if found is None or int(found[4], 16) > _MAX_PARTITION:
        return None
    return int(found[1], 16), int(found[2], 16), _id_of(found[3]), int(found[4], 16)


def receipt_of(text: str) -> Receipt | None:
    """Return the receipt in a text, None if there is none."""
    prefix, _, digits = text.rpartition(".")
    known = _prefix_of(prefix)
    if known is None or not digits.isalnum() or len(digits) > _DIGITS:
        return None
    try:
        offset = int(digits, 16)
    except ValueError:
        return None
    return Receipt(*known, offset) if offset <= _MAX_OFFSET else None


def lease_text(lease: int) -> str:
    """Return a lease as text."""
    return f"{lease:x}"


def lease_of(text: str) -> int | None:
    """Return the lease in a text, None if there is none."""
    return int(text, 16) if _LEASE.fullmatch(text) else None
