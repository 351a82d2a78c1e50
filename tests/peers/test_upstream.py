"""A gateway over a real Apache Kafka 4.1 of one node: every surface, beside clients and tools of Kafka."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.contract import test_commit as commits
from tests.contract import test_members as members
from tests.contract import test_produce_read as records
from tests.contract import test_topics as topics
from tests.contract.clients import KafkaClient, NativeClient, RestV2Client
from tests.gateway_process import GatewayProcess
from tests.peers.kafka import KafkaProcess, Tools

API = "/api/v1"
V2 = "application/vnd.kafka.v2+json"
V2_JSON = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def gateway(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway over the Kafka of tests/peers; its log must hold no traceback in the end."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway") / "data", kafka.bootstrap)
    try:
        yield process.start()
        died = not process.running
    finally:
        process.kill()
    log = process.read_log()
    assert not died and "Traceback" not in log, f"the gateway failed:\n{log[-20_000:]}"


@pytest.fixture(scope="module", autouse=True)
def coordinator(kafka: KafkaProcess) -> None:
    """Wait until Kafka keeps offsets: it makes their topic at the first question, and raw clients do not wait."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "up-first"})
    try:
        consumer.committed([TopicPartition("up-none", 0)], timeout=60)
    finally:
        consumer.close()


class PatientKafkaClient(KafkaClient):
    """The raw client, which waits until the topic that it has made has a leader."""

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        super().create_topic(name, partitions, configs)
        time.sleep(0.5)


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """An HTTP client of the gateway."""
    with httpx.Client(base_url=gateway.http, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for topics and groups that no other test has."""
    counter = iter(range(100))
    base = "".join(c if c.isalnum() else "-" for c in request.node.name)[:120]
    # A test that is repeated needs others.
    unique = uuid.uuid4().hex[:8]
    return lambda: f"up-{base}-{unique}-{next(counter)}"


def done(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


# --- the scenarios of tests/contract -----------------------------------------------------------------------

_SCENARIOS: list[tuple[Any, str]] = [
    (topics.test_a_topic_made_over_one_listener_is_there_at_the_others, "topics"),
    (topics.test_a_topic_shrinks_over_no_listener, "topics"),
    (commits.test_a_client_that_is_no_member_cannot_commit_for_one, "commit"),
    (commits.test_a_group_with_members_is_not_deleted, "commit"),
    (members.test_a_member_owns_all_beats_and_leaves, "join"),
    (members.test_generations_and_members_are_fenced, "members"),
    (records.test_offsets_out_of_range_are_refused, "read"),
    (records.test_records_are_deleted_below_an_offset, "truncate"),
]


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [(one, kind) for one, verb in _SCENARIOS for kind in (NativeClient, RestV2Client) if verb in kind.VERBS],
    ids=lambda value: getattr(value, "name", "") or value.__name__.removeprefix("test_"),
)
def test_a_scenario_of_every_client_holds_over_kafka(
    gateway: GatewayProcess, name: Callable[[], str], scenario: Any, kind: Any
) -> None:
    client, kafka = kind(gateway), PatientKafkaClient(gateway)
    known = {"client": client, "kafka": kafka, "name": name}
    wanted = scenario.__code__.co_varnames[: scenario.__code__.co_argcount]
    try:
        scenario(**{one: known[one] for one in wanted})
    finally:
        client.close()
        kafka.close()


# --- records and topics ------------------------------------------------------------------------------------


def test_what_the_gateway_writes_librdkafka_reads_and_the_other_way(
    http: httpx.Client, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic = name()
    done(
        http.put(f"{API}/topics/{topic}", json={"partitions": 2, "configs": {"retention.ms": "86400000"}}),
        201,
    )
    records = [
        {"key": f"k{n}", "value": {"n": n}, "headers": [{"name": "h", "value": "x"}]} for n in range(50)
    ]
    written = done(http.post(f"{API}/topics/{topic}/records", json={"records": records}))["records"]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for n in range(50, 100):
        producer.produce(topic, key=f"k{n}", value=json.dumps({"n": n}))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    seen: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + 60
    while len(seen) < 100 and time.monotonic() < deadline:
        for message in consumer.consume(100, 1.0):
            assert message.error() is None
            seen[message.partition() or 0, message.offset() or 0] = json.loads(message.value() or b"")["n"]
    consumer.close()
    assert sorted(seen.values()) == list(range(100))
    assert [seen[one["partition"], one["offset"]] for one in written] == list(range(50))
    found = []
    for partition in (0, 1):
        page = done(
            http.get(f"{API}/topics/{topic}/partitions/{partition}/records?offset=earliest&limit=500")
        )
        found += [one["value"]["n"] for one in page["records"]]
        # Java's murmur2 and ours agree with librdkafka's consistent_random only by accident: no check of places.
    assert sorted(found) == list(range(100))
    shown = done(http.get(f"{API}/topics/{topic}"))
    assert shown["partitions"] == 2
    assert topic in [one["name"] for one in done(http.get(f"{API}/topics?page_size=1000"))["items"]]
    done(http.delete(f"{API}/topics/{topic}"), 204)
    assert http.get(f"{API}/topics/{topic}").status_code == 404


def test_a_keyed_write_is_there_once_also_after_kill_9(
    gateway: GatewayProcess, http: httpx.Client, name: Callable[[], str]
) -> None:
    topic = name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 1}), 201)
    body = {"records": [{"value": "once"}]}
    first = http.post(f"{API}/topics/{topic}/records", json=body, headers={"idempotency-key": '"k"'})
    assert first.status_code == 200, first.text
    gateway.kill()
    gateway.start()
    again = httpx.post(
        f"{gateway.http}{API}/topics/{topic}/records", json=body, headers={"idempotency-key": '"k"'},
        timeout=60, trust_env=False,
    )  # fmt: skip
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (200, "true"), again.text
    page = done(httpx.get(f"{gateway.http}{API}/topics/{topic}/partitions/0/records?offset=0", timeout=60))
    assert [one["value"] for one in page["records"]] == ["once"]


def test_committed_reads_of_a_transactional_producer(
    http: httpx.Client, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic = name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 1}), 201)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, value=f"{'committed' if commit else 'aborted'}")
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, value="open")
    producer.flush(30)
    url = f"{API}/topics/{topic}/partitions/0/records?offset=0"
    page = done(http.get(url))
    assert [(one["offset"], one["value"]) for one in page["records"]] == [(0, "committed"), (4, "committed")]
    assert page["last_stable_offset"] == 6 and page["caught_up"]
    raw = done(http.get(f"{url}&isolation_level=read_uncommitted"))
    assert [one["value"] for one in raw["records"]] == ["committed", "aborted", "committed", "open"]
    assert http.get(f"{API}/topics/{topic}/partitions/0/records/1").status_code == 410
    producer.abort_transaction(30)


def test_a_stream_follows_what_kafka_gets(
    http: httpx.Client, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic = name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 1}), 201)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    url = f"{API}/topics/{topic}/records?from=latest"
    with http.stream("GET", url, headers={"accept": "text/event-stream"}) as stream:
        values: list[str] = []
        for line in stream.iter_lines():
            if line.startswith("event: caught_up") and not values:
                for n in range(3):
                    producer.produce(topic, value=f"v{n}")
                producer.flush(30)
            if line.startswith("data:") and '"value"' in line:
                values.append(json.loads(line[5:])["value"])
            if len(values) == 3:
                break
    assert values == ["v0", "v1", "v2"]


# --- groups ------------------------------------------------------------------------------------------------


def test_a_managed_consumer_shares_a_group_with_librdkafka_and_survives_kill_9(
    gateway: GatewayProcess, http: httpx.Client, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic, group = name(), name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 4}), 201)
    url = f"{API}/groups/{group}/consumers"
    done(http.post(url, json={"name": "c", "topics": [topic]}), 201)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range"}  # fmt: skip
    other = Consumer(settings)
    other.subscribe([topic])
    deadline = time.monotonic() + 60
    mine: set[int] = set()
    theirs: set[int] = set()
    while time.monotonic() < deadline:
        other.poll(0.2)
        done(http.post(f"{url}/c:poll", json={"wait_ms": 0}))
        theirs = {one.partition for one in other.assignment()}
        mine = {one["partition"] for one in done(http.get(f"{url}/c"))["partitions"]}
        if mine and theirs and not mine & theirs:
            break
    assert mine | theirs == {0, 1, 2, 3} and not mine & theirs, (mine, theirs)
    records = [{"value": str(p), "partition": p} for p in range(4)]
    done(http.post(f"{API}/topics/{topic}/records", json={"records": records}))
    batch = done(http.post(f"{url}/c:poll", json={"wait_ms": 10_000}))
    assert batch["records"]
    before = done(http.get(f"{API}/groups/{group}"))
    gateway.kill()
    gateway.start()
    with httpx.Client(base_url=gateway.http, timeout=60, trust_env=False) as after:
        again = done(after.post(f"{url}/c:poll", json={"wait_ms": 10_000}))
        assert again["ack"] == batch["ack"] and again["redelivered"]
        done(after.post(f"{url}/c:ack", json={"ack": again["ack"]}))
        # Nothing was assigned again: the other member has seen no rebalance.
        shown = done(after.get(f"{API}/groups/{group}"))
        assert shown.get("generation_id") == before.get("generation_id")
        assert {one["member_id"] for one in shown["members"]} == {
            one["member_id"] for one in before["members"]
        }
        assert {one.partition for one in other.assignment()} == theirs
        done(after.delete(f"{url}/c"), 204)
    other.close()


def test_a_group_is_described_reset_and_deleted_as_the_tools_see_it(
    http: httpx.Client, kafka: KafkaProcess, tools: Tools, name: Callable[[], str]
) -> None:
    topic, group = name(), name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 1}), 201)
    done(
        http.post(f"{API}/topics/{topic}/records", json={"records": [{"value": f"v{n}"} for n in range(10)]})
    )
    url = f"{API}/groups/{group}/consumers"
    done(http.post(url, json={"name": "c", "topics": [topic]}), 201)
    batch = done(http.post(f"{url}/c:poll", json={"limit": 4, "wait_ms": 20_000}))
    done(http.post(f"{url}/c:ack", json={"ack": batch["ack"]}))
    count = len(batch["records"])
    lag = done(http.get(f"{API}/groups/{group}/lag"))
    assert lag["total_lag"] == 10 - count
    said = tools.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group,
    )  # fmt: skip
    assert f"{topic} 0 {count} 10 {10 - count}" in " ".join(said.out.split()), said
    done(http.delete(f"{url}/c"), 204)
    reset = tools.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", kafka.bootstrap, "--group", group, "--topic", topic, "--reset-offsets",
        "--to-offset", "7", "--execute",
    )  # fmt: skip
    assert reset.exit == 0, reset
    done(http.post(url, json={"name": "d", "topics": [topic]}), 201)
    batch = done(http.post(f"{url}/d:poll", json={"wait_ms": 20_000}))
    assert [one["value"] for one in batch["records"]] == ["v7", "v8", "v9"]
    done(http.delete(f"{url}/d"), 204)
    assert http.delete(f"{API}/groups/{group}").status_code == 204
    assert http.get(f"{API}/groups/{group}").status_code == 404


def test_an_instance_of_the_rest_proxy_lives_its_life(http: httpx.Client, name: Callable[[], str]) -> None:
    topic, group = name(), name()
    done(http.put(f"{API}/topics/{topic}", json={"partitions": 1}), 201)
    body = {"records": [{"value": {"n": n}} for n in range(3)]}
    done(http.post(f"/topics/{topic}", json=body, headers={"content-type": V2_JSON}))
    headers = {"content-type": V2}
    options = {"name": "i", "format": "json", "auto.offset.reset": "earliest"}
    base = done(http.post(f"/consumers/{group}", json=options, headers=headers))["base_uri"]
    done(http.post(f"{base}/subscription", json={"topics": [topic]}, headers=headers), 204)
    seen: list[Any] = []
    deadline = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < deadline:
        seen += done(http.get(f"{base}/records?timeout=3000", headers={"accept": V2_JSON}))
    assert [one["value"]["n"] for one in seen] == [0, 1, 2]
    assert http.post(f"{base}/offsets", headers=headers).status_code in (200, 204)
    offsets = done(
        http.request(
            "GET", f"{base}/offsets", json={"partitions": [{"topic": topic, "partition": 0}]}, headers=headers
        )
    )
    assert [one["offset"] for one in offsets["offsets"]] == [3]
    done(http.delete(base, headers=headers), 204)


# --- what there is not -------------------------------------------------------------------------------------


def test_what_a_gateway_cannot_do_is_said(http: httpx.Client, kafka: KafkaProcess) -> None:
    overview = done(http.get(f"{API}/"))
    assert "transactions" not in overview["capabilities"]
    refused = http.post(f"{API}/transactions", json={"name": "t"})
    assert refused.status_code == 501 and refused.json()["detail"], refused.text
    listed = done(http.get(f"{API}/brokers"))
    assert str(kafka.ports["PLAINTEXT"]) in json.dumps(listed)
    assert http.get("/readyz").status_code == 200
