"""librdkafka beyond a quota: it learns how long it is throttled, and all that it sends arrives."""

from __future__ import annotations

import time
from typing import Any

import httpx
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS

CLIENT_ID = "greedy"


def test_librdkafka_is_throttled(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=f"{broker.http}/api/v1", trust_env=False, timeout=CALL_SECONDS) as api:
        _throttled(broker, api)


def _throttled(broker: BrokerProcess, api: httpx.Client) -> None:
    entity = [{"type": "client-id", "name": CLIENT_ID}]
    quotas = {"producer_byte_rate": 10_000}
    assert api.put("/quotas", json={"entity": entity, "quotas": quotas}).status_code == 200
    assert api.put("/topics/throttled").status_code == 201
    events: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*broker.kafka_address),
            "client.id": CLIENT_ID,
            "batch.size": 20_000,
            "linger.ms": 0,
            "throttle_cb": events.append,
        }
    )
    # The window of ten seconds takes 100,000 bytes. What is above that is waited for: a second or two.
    for number in range(6):
        producer.produce("throttled", bytes([number]) * 19_000)
        assert producer.flush(CALL_SECONDS) == 0
    deadline = time.monotonic() + CALL_SECONDS
    while not events and time.monotonic() < deadline:
        producer.poll(0.1)
    assert events, "librdkafka has seen no throttle_time_ms"
    assert 0 < events[0].throttle_time < 30
    read = api.get("/topics/throttled").json()
    assert read["partition_details"][0]["latest"] == 6
    assert api.delete(f"/quotas?client_id={CLIENT_ID}").status_code == 204
