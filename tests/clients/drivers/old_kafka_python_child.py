"""An old kafka-python, driven by a pipe: `old_kafka_python_child.py BOOTSTRAP API_VERSION`. See child.py.

PYTHONPATH names the directory with the release, and with the package six: the copy of six that these releases
carry cannot be imported by Python 3.12 any more.
"""

import base64
import json
import sys
import time

import six

sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from kafka.errors import KafkaError  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402

BOOTSTRAP = sys.argv[1]
API_VERSION = tuple(int(part) for part in sys.argv[2].split("."))
CALL_SECONDS = 30.0

producers = {}
consumers = []
grouped = {}


def text(data):
    """Bytes for the pipe."""
    return None if data is None else base64.b64encode(data).decode()


def raw(data):
    """Bytes from the pipe."""
    return None if data is None else base64.b64decode(data)


def producer(codec="none"):
    """The producer for a codec."""
    if codec not in producers:
        producers[codec] = KafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            api_version=API_VERSION,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=20,
            max_request_size=10_000_000,
        )
    return producers[codec]


def consumer():
    """The consumer, without a group."""
    if not consumers:
        consumers.append(
            KafkaConsumer(
                bootstrap_servers=BOOTSTRAP,
                api_version=API_VERSION,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset=None,
                fetch_max_wait_ms=100,
            )
        )
    return consumers[0]


def write(topic, partition, messages, codec):
    """Send messages in order and wait for all answers."""
    sent = []
    for message in messages:
        options = {"timestamp_ms": message["timestamp"]}
        if message["headers"]:
            options["headers"] = [(name, raw(value)) for name, value in message["headers"]]
        key, value = raw(message["key"]), raw(message["value"])
        sent.append(producer(codec).send(topic, key=key, value=value, partition=partition, **options))
    producer(codec).flush(CALL_SECONDS)
    for future in sent:
        future.get(CALL_SECONDS)


def choose(topic, key):
    """Send one message with a key; the partition that it went to."""
    return producer().send(topic, key=raw(key), value=b"").get(CALL_SECONDS).partition


def read(topic, partition, offset, count):
    """The next messages from an offset on. What the format does not have: timestamp −1, no headers."""
    asked = TopicPartition(topic, partition)
    consumer().assign([asked])
    consumer().seek(asked, offset)
    found = []
    deadline = time.monotonic() + CALL_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        polled = consumer().poll(timeout_ms=1000, max_records=count - len(found))
        for record in polled.get(asked, ()):
            found.append(
                {
                    "key": text(record.key),
                    "value": text(record.value),
                    "headers": [[name, text(value)] for name, value in record.headers or ()],
                    "timestamp": -1 if record.timestamp is None else record.timestamp,
                    "offset": record.offset,
                }
            )
    return found


def offset_for_time(topic, partition, timestamp):
    """The first offset that is not older, or null."""
    asked = TopicPartition(topic, partition)
    found = consumer().offsets_for_times({asked: timestamp})[asked]
    return None if found is None else found.offset


def bounds(topic, partition):
    """The earliest and the next offset."""
    asked = TopicPartition(topic, partition)
    return [consumer().beginning_offsets([asked])[asked], consumer().end_offsets([asked])[asked]]


def in_group(group):
    """The consumer of a group; its partitions are assigned by hand."""
    if group not in grouped:
        grouped[group] = KafkaConsumer(
            bootstrap_servers=BOOTSTRAP, api_version=API_VERSION, group_id=group, enable_auto_commit=False
        )
    return grouped[group]


def commit(group, topic, partition, offset, metadata):
    """Commit a position."""
    asked = TopicPartition(topic, partition)
    in_group(group).assign([asked])
    in_group(group).commit({asked: OffsetAndMetadata(offset, metadata)})


def committed(group, topic, partition):
    """The committed position as the broker has it, or null: of an assigned one the client would remember it."""
    in_group(group).unsubscribe()
    return in_group(group).committed(TopicPartition(topic, partition))


def topics():
    """Every topic with its number of partitions."""
    fresh = KafkaConsumer(bootstrap_servers=BOOTSTRAP, api_version=API_VERSION, group_id=None)
    try:
        return {name: len(fresh.partitions_for_topic(name)) for name in fresh.topics()}
    finally:
        fresh.close()


VERBS = {
    "write": write,
    "read": read,
    "choose": choose,
    "offset_for_time": offset_for_time,
    "bounds": bounds,
    "topics": topics,
    "commit": commit,
    "committed": committed,
}

if __name__ == "__main__":
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"result": VERBS[command.pop("verb")](**command)}
        except KafkaError as error:
            answer = {"error": {"code": getattr(error, "errno", None), "message": repr(error)}}
        print(json.dumps(answer), flush=True)
    for client in [*producers.values(), *consumers, *grouped.values()]:
        client.close()
