"""Write a record with a client that logs in, and read it with the same client: settings in, nothing out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from tests.clients.driver import CALL_SECONDS
from tests.conftest import NODE_MODULES, node_path, old_kafka_python_path
from tests.secured import PASSWORD, USER

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DRIVERS = Path(__file__).parent / "drivers"

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def topic_name(request: pytest.FixtureRequest) -> str:
    """Return the name of the topic of a test."""
    name: str = request.node.name
    return name.replace("[", "-").replace("]", "").replace("test_", "")


def rdkafka(bootstrap: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    """Return the settings of librdkafka without TLS."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def python_settings(bootstrap: str, mechanism: str) -> dict[str, Any]:
    """Return the settings of kafka-python and aiokafka without TLS."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


def by_librdkafka(settings: dict[str, Any], topic: str, text: str) -> None:
    """Write and read by confluent-kafka."""
    producer = Producer(settings)
    producer.produce(topic, text)
    assert producer.flush(CALL_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(CALL_SECONDS)
    assert message is not None and message.value() == text.encode()
    consumer.close()


def by_kcat(settings: dict[str, Any], topic: str, text: str) -> None:
    """Write and read by kcat, with the settings of librdkafka."""
    others = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    options = [part for name, value in others.items() for part in ("-X", f"{name}={value}")]
    kcat = ["kcat", "-b", settings["bootstrap.servers"], *options, "-t", topic, "-p", "0"]
    subprocess.run([*kcat, "-P"], input=text.encode(), check=True, timeout=CALL_SECONDS, capture_output=True)
    read = [*kcat, "-C", "-e", "-q", "-o", "beginning"]
    done = subprocess.run(read, check=True, timeout=CALL_SECONDS, capture_output=True)
    assert done.stdout.decode().strip() == text


def by_kafka_python(settings: dict[str, Any], topic: str, text: str) -> None:
    """Write and read by kafka-python."""
    producer = KafkaProducer(**settings)
    producer.send(topic, text.encode()).get(CALL_SECONDS)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    consumer.assign([PythonTopicPartition(topic, 0)])
    assert next(consumer).value == text.encode()
    consumer.close()


async def by_aiokafka(settings: dict[str, Any], topic: str, text: str) -> None:
    """Write and read by aiokafka."""
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, text.encode())
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        record = await asyncio.wait_for(consumer.getone(), CALL_SECONDS)
    assert record.value == text.encode()


def by_old_kafka_python(
    release: str, version: str, bootstrap: str, mechanism: str, topic: str, **environment: str
) -> None:
    """Write and read by an old release of kafka-python that takes the broker for one of this version."""
    path = old_kafka_python_path(release)
    assert path is not None
    command = [sys.executable, str(_DRIVERS / "sasl_kafka_python.py"), bootstrap, version, mechanism]
    command += [USER, PASSWORD, topic]
    _run(command, f"from {mechanism}", PYTHONPATH=path, **environment)


def by_kafkajs(bootstrap: str, mechanism: str, topic: str, **environment: str) -> None:
    """Write and read by kafkajs."""
    node = node_path()
    assert node is not None
    command = [node, str(_DRIVERS / "sasl_kafka_js.js"), bootstrap, mechanism, USER, PASSWORD, topic]
    known = {"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    _run(command, "1", **known, **environment)


def _run(command: list[str], expected: str, **environment: str) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * CALL_SECONDS)
    assert done.stdout.strip() == expected, done.stderr
