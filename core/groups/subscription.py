"""What the coordinator reads out of a consumer's metadata: the topics it wants.

The metadata belongs to the clients; the coordinator looks into it for two things only, the expiry of offsets
of topics that nobody reads any more (KIP-211) and the refusal to delete offsets of topics that somebody reads
(KIP-496).
"""

from __future__ import annotations

from collections.abc import Iterable

from core.protocol.consumer_protocol import decode_subscription
from core.protocol.primitives import ProtocolError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any member wants; None for other protocol types and where a subscription is unreadable."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    wanted: set[str] = set()
    try:
        for metadata in subscriptions:
            wanted.update(decode_subscription(metadata).topics)
    except ProtocolError:
        return None
    return frozenset(wanted)
