"""An old kafka-python that logs in: `sasl_kafka_python.py BOOTSTRAP API_VERSION MECHANISM USER PASSWORD TOPIC`.

Writes a record and reads it again. With SSL_CAFILE in the environment it does
so over TLS. PYTHONPATH names the release, and the package six: see old_kafka_python_child.py.
"""

import os
import sys

import six

sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402

BOOTSTRAP, VERSION, MECHANISM, USER, PASSWORD, TOPIC = sys.argv[1:]
LOGIN = {
    "bootstrap_servers": BOOTSTRAP,
    "api_version": tuple(int(part) for part in VERSION.split(".")),
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": MECHANISM,
    "sasl_plain_username": USER,
    "sasl_plain_password": PASSWORD,
}
if "SSL_CAFILE" in os.environ:
    LOGIN.update(security_protocol="SASL_SSL", ssl_cafile=os.environ["SSL_CAFILE"])

producer = KafkaProducer(acks="all", **LOGIN)
producer.send(TOPIC, b"from " + MECHANISM.encode()).get(30)
producer.close()
consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=30000, **LOGIN)
consumer.assign([TopicPartition(TOPIC, 0)])
consumer.seek_to_beginning()
print(next(consumer).value.decode())
consumer.close()
