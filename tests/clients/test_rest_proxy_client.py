"""Client libraries of the REST Proxy that were written for other gateways drive the v2 surface, unchanged.

- `pymapr-kafkarest` (PyPI), a v2 client: instances, subscriptions, positions, records, a producer.
- `kafka-rest` (npm), Confluent's own for Node: brokers, topics, partitions, a producer. It speaks v1, which has the
  same bodies there under media types of its own.

Both run in processes of their own: the first sets up logging for the whole process when it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import NODE_MODULES, node_path

SECONDS = 60
PYTHON_CLIENT = "pymapr_kafkarest"

# What a program with this client looks like: connect, subscribe, consume, go back, leave.
CONSUME = """
import json, sys, time
from pymapr_kafkarest.kafkarest import MaprKlient, MaprKProducer

url, topic = sys.argv[1:]
producer = MaprKProducer(url, headers={})
producer.produce([{"key": 1, "value": {"n": n}} for n in range(3)], topic=topic)

client = MaprKlient(url, "readers", headers={}, topics=[topic], instance="one")
client.connect()
client.subscribe()
seen = []
while not seen:
    seen += client.consume()
told = {"first": seen, "empty": client.consume()}
told["back"] = client.consume(position=1)
told["again"] = client.consume(seek=True)
told["topics"] = client._subscription_topics()

# A second client of the same name finds the instance, clears it away and takes its place.
other = MaprKlient(url, "readers", headers={}, topics=[topic], instance="one", follow_base_uri=True)
other.connect(clear=True)
told["cleared"] = other._subscription_topics()
other._instance_delete()
told["deleted"] = other._subscription_topics()
print(json.dumps(told))
"""

# The Node client's callbacks as promises; nothing of the client is changed.
PRODUCE = """
const KafkaRest = require('kafka-rest');
const [url, topic] = process.argv.slice(1);
const kafka = new KafkaRest({url});
const call = (object, method, ...args) => new Promise((resolve, reject) =>
  object[method](...args, (error, result) => error ? reject(error) : resolve(result)));
(async () => {
  const told = {};
  told.brokers = (await call(kafka.brokers, 'list')).map(broker => broker.id);
  told.produced = await call(kafka.topic(topic), 'produce', 'one', {key: 'k', value: 'two', partition: 0});
  told.to_partition = await call(kafka.topicPartition(topic, 0), 'produce', ['three', {key: 'k', value: null}]);
  told.topics = (await call(kafka.topics, 'list')).map(one => one.name);
  told.topic = (await call(kafka.topics, 'get', topic)).raw;
  told.partitions = (await call(kafka.topic(topic).partitions, 'list')).map(one => one.raw);
  told.partition = (await call(kafka.topicPartition(topic, 0), 'get')).raw;
  told.missing = await call(kafka.topics, 'get', 'nothing').catch(error => [error.status, error.data.error_code]);
  const instance = await call(kafka.consumer('readers'), 'join', {id: 'node', format: 'binary'});
  told.instance = [instance.id, instance.uri];
  await call(instance, 'shutdown');
  told.active = instance.active;
  console.log(JSON.stringify(told));
})().catch(error => { console.error(error); process.exit(1); });
"""


def run(command: list[str], *, environment: dict[str, str] | None = None) -> Any:
    """Run a client program; the JSON that it prints."""
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=environ | (environment or {})
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_python_client_consumes(broker: BrokerProcess) -> None:
    assert importlib.util.find_spec(PYTHON_CLIENT), "the test extra brings it"
    told = run([sys.executable, "-c", CONSUME, f"{broker.http}/", "readings"])
    # Its producer sends a request as often as it may try, also when the first try succeeds: four times.
    values = [{"n": n} for n in range(3)] * 4
    assert [record["value"] for record in told["first"]] == values
    assert [record["offset"] for record in told["first"]] == list(range(12))
    assert {(record["topic"], record["partition"], record["key"]) for record in told["first"]} == {
        ("readings", 0, 1)
    }
    assert told["empty"] == []
    assert [record["value"] for record in told["back"]] == values[1:]
    assert [record["value"] for record in told["again"]] == values
    assert told["topics"] == {"topics": ["readings"]}
    assert told["cleared"] == {"topics": []}
    assert told["deleted"] == {}


@pytest.mark.client("kafkajs")
def test_confluents_node_client_produces(broker: BrokerProcess) -> None:
    assert (NODE_MODULES / "kafka-rest").is_dir(), "`python3 tests/run.py` installs it"
    node = node_path()
    assert node is not None
    told = run(
        [node, "-e", PRODUCE, broker.http, "events"], environment={"NODE_PATH": str(Path(NODE_MODULES))}
    )
    assert told["brokers"] == [1]
    entries = [(e["partition"], e["offset"], e["error_code"]) for e in told["produced"]["offsets"]]
    assert entries == [(0, 0, None), (0, 1, None)]
    assert [e["offset"] for e in told["to_partition"]["offsets"]] == [2, 3]
    assert "events" in told["topics"]
    assert told["topic"]["name"] == "events"
    assert told["partition"] == told["partitions"][0] == told["topic"]["partitions"][0]
    assert told["missing"] == [404, 40403]
    assert told["instance"] == ["node", f"{broker.http}/consumers/readers/instances/node"]
    assert told["active"] is False
    answer = httpx.get(f"{broker.http}/api/v1/topics/events/partitions/0/records", trust_env=False)
    assert [(r["key"], r["value"]) for r in answer.json()["records"]] == [
        (None, "one"), ("k", "two"), (None, "three"), ("k", None),
    ]  # fmt: skip
