"""What is recorded of a real Kafka: one script for each file tests/golden/data/kafka-4.1-NAME.json."""

from __future__ import annotations

from tests.peers.record import Recording
from tests.peers.recorded_acls import acls
from tests.peers.recorded_groups import consumer_groups, share_groups
from tests.peers.recorded_transactions import transactions

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

RECORDINGS = {
    "acls": Recording(
        acls,
        settings={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"},
        users={"admin": "admin-secret", "alice": "alice-secret"},
    ),
    "transactions": Recording(
        transactions, settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ),
    "consumer-groups": Recording(consumer_groups),
    "share-groups": Recording(
        share_groups,
        settings={"group.share.record.lock.duration.ms": "15000"},
        features=("share.version=1",),
    ),
}
"""The recordings by name."""
