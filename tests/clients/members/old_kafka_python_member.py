"""A group member by an old kafka-python: `old_kafka_python_member.py BOOTSTRAP API_VERSION GROUP TOPIC`.

It says what python_member.py says. PYTHONPATH names the release, as for drivers/old_kafka_python_child.py.
"""

import json
import signal
import sys

import six

sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves

from kafka import ConsumerRebalanceListener, KafkaConsumer  # noqa: E402
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: E402
from kafka.errors import KafkaError  # noqa: E402

SESSION_MS, HEARTBEAT_MS = 3000, 300

stopping = False


def say(**event):
    """One event, one line."""
    print(json.dumps(event), flush=True)


class Listener(ConsumerRebalanceListener):
    """Says what it was given."""

    def on_partitions_revoked(self, revoked):
        """Nothing is kept."""

    def on_partitions_assigned(self, assigned):
        """Say it."""
        say(assigned=[one.partition for one in assigned])


def consume(bootstrap, api_version, group, topic):
    """Read and commit until told to stop."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=tuple(int(part) for part in api_version.split(".")),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    while not stopping:
        polled = consumer.poll(timeout_ms=100)
        records = [record for found in polled.values() for record in found]
        for record in records:
            say(read=[record.partition, record.offset, record.value.decode()])
        if records:
            try:
                consumer.commit()
                say(committed={record.partition: record.offset + 1 for record in records})
            except KafkaError as error:
                say(refused=repr(error))
    consumer.close(autocommit=False)


def stop(*_):
    """Leave at the next turn."""
    global stopping
    stopping = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    consume(*sys.argv[1:])
