"""A member of a share group by librdkafka: `python_share_member.py BOOTSTRAP GROUP TOPIC`; see share_member.py."""

from __future__ import annotations

import json
import os
import signal
import sys

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

MODE = os.environ["MODE"]


def say(event: str, what: object) -> None:
    """Say one event in one line."""
    print(json.dumps({event: what}), flush=True)


def verdict(deliveries: int) -> AcknowledgeType:
    """What to do with a record of this many deliveries."""
    if MODE == "release" and deliveries == 1:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if MODE == "reject" else AcknowledgeType.ACCEPT


def main() -> None:
    bootstrap, group, topic = sys.argv[1:]
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "implicit" if MODE == "implicit" else "explicit",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe([topic])
    while not stopping:
        messages = [one for one in consumer.poll(0.2) if one.error() is None]
        if messages:
            say("polled", len(messages))
        for message in messages:
            deliveries = getattr(message, "delivery_count", lambda: 0)() or 0
            say("read", [message.partition(), message.offset(), message.value().decode(), deliveries])
            if MODE != "implicit":
                consumer.acknowledge(message, verdict(deliveries))
        if MODE != "implicit" and messages:
            acknowledge(consumer)
    consumer.close()


def acknowledge(consumer: ShareConsumer) -> None:
    """Commit, and say what came of it."""
    try:
        for tp, error in consumer.commit_sync(30.0).items():
            say("refused", str(error)) if error else say("acknowledged", tp.partition)
    except KafkaException as error:
        say("refused", str(error))


if __name__ == "__main__":
    main()
