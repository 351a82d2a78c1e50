"""Groups of a real Apache Kafka through a gateway: members of both protocols, and what a restart shows to others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.gateway_process import GatewayProcess
from tests.peers.kafka import KafkaProcess, Tools
from tests.peers.tool_rows import MAINS

API = "/api/v1"


@pytest.fixture(scope="module")
def gateway(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway over the Kafka of tests/peers; its log must hold no traceback in the end."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway") / "data", kafka.bootstrap)
    try:
        yield process.start()
    finally:
        process.kill()
    assert "Traceback" not in process.read_log()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for topics and groups that no other test has."""
    counter = iter(range(100))
    return lambda: f"ug-{abs(hash(request.node.name)) % 10**8}-{next(counter)}"


class Http(httpx.Client):
    """An HTTP client of the gateway that asserts the status."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__(base_url=f"{gateway.http}{API}", timeout=60, trust_env=False)

    def done(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def owned(self, group: str) -> set[int]:
        """The partitions of the consumer c, which polls."""
        self.done("POST", f"/groups/{group}/consumers/c:poll", {"wait_ms": 0})
        shown = self.done("GET", f"/groups/{group}/consumers/c")
        return {one["partition"] for one in shown["partitions"]}


class Member:
    """A member of librdkafka, and how often it was given an assignment."""

    def __init__(self, kafka: KafkaProcess, group: str, topic: str, protocol: str) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                    "group.protocol": protocol, "enable.auto.commit": False}  # fmt: skip
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "range"
        self.assigned = 0
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1

    def owned(self) -> set[int]:
        self.consumer.poll(0.1)
        return {one.partition for one in self.consumer.assignment()}


def shared(http: Http, group: str, member: Member, count: int = 4) -> tuple[set[int], set[int]]:
    """Wait until the managed consumer and a member own all partitions, none of them twice."""
    deadline = time.monotonic() + 60
    mine, theirs = http.owned(group), member.owned()
    while time.monotonic() < deadline:
        mine, theirs = http.owned(group), member.owned()
        if mine and theirs and not mine & theirs and mine | theirs == set(range(count)):
            return mine, theirs
    raise AssertionError(f"{mine} and {theirs}")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_managed_consumer_shares_a_group_with_members_of_both_protocols(
    gateway: GatewayProcess, kafka: KafkaProcess, name: Callable[[], str], protocol: str
) -> None:
    topic, group = name(), name()
    with Http(gateway) as http:
        http.done("PUT", f"/topics/{topic}", {"partitions": 4}, 201)
        member = Member(kafka, group, topic, protocol)
        deadline = time.monotonic() + 60
        while member.owned() != {0, 1, 2, 3} and time.monotonic() < deadline:
            pass
        http.done("POST", f"/groups/{group}/consumers", {"name": "c", "topics": [topic]}, 201)
        mine, theirs = shared(http, group, member)
        shown = http.done("GET", f"/groups/{group}")
        assert shown["type"] == protocol, shown
        assert len(shown["members"]) == 2
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for partition in range(4):
            producer.produce(topic, value=str(partition), partition=partition)
        assert producer.flush(30) == 0
        batch = http.done("POST", f"/groups/{group}/consumers/c:poll", {"wait_ms": 10_000})
        assert {one["partition"] for one in batch["records"]} <= mine
        before = member.assigned
        gateway.kill()
        # The member of librdkafka polls on, and sees no rebalance while the gateway is down and after it is back.
        until = time.monotonic() + 5
        while time.monotonic() < until:
            member.owned()
        gateway.start()
    with Http(gateway) as http:
        again = http.done("POST", f"/groups/{group}/consumers/c:poll", {"wait_ms": 10_000})
        assert again["ack"] == batch["ack"] and again["redelivered"]
        http.done("POST", f"/groups/{group}/consumers/c:ack", {"ack": again["ack"]})
        until = time.monotonic() + 8
        while time.monotonic() < until:
            assert member.owned() == theirs
        assert member.assigned == before
        lag = http.done("GET", f"/groups/{group}/lag")
        assert {one["partition"] for one in lag["partitions"]} == {0, 1, 2, 3}
        member.consumer.close()
        deadline = time.monotonic() + 60
        while http.owned(group) != {0, 1, 2, 3} and time.monotonic() < deadline:
            time.sleep(0.2)
        assert http.owned(group) == {0, 1, 2, 3}
        http.done("DELETE", f"/groups/{group}/consumers/c", status=204)


def test_members_of_three_kinds_own_each_partition_once(
    gateway: GatewayProcess, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic, group = name(), name()
    with Http(gateway) as http:
        http.done("PUT", f"/topics/{topic}", {"partitions": 6}, 201)
        members = [Member(kafka, group, topic, "consumer"), Member(kafka, group, topic, "classic")]
        http.done("POST", f"/groups/{group}/consumers", {"name": "c", "topics": [topic]}, 201)
        deadline = time.monotonic() + 90
        while True:
            parts = [http.owned(group), *(member.owned() for member in members)]
            whole = sorted(one for part in parts for one in part)
            if all(parts) and whole == list(range(6)):
                break
            assert time.monotonic() < deadline, parts
        for member in members:
            member.consumer.close()
        deadline = time.monotonic() + 60
        while http.owned(group) != set(range(6)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert http.owned(group) == set(range(6))
        http.done("DELETE", f"/groups/{group}/consumers/c", status=204)


def test_members_and_keys_over_kafka_3_9(
    kafka39: KafkaProcess, tmp_path_factory: pytest.TempPathFactory, name: Callable[[], str]
) -> None:
    topic, group = name(), name()
    process = GatewayProcess(tmp_path_factory.mktemp("gateway-3.9") / "data", kafka39.bootstrap)
    process.start()
    try:
        with Http(process) as http:
            http.done("PUT", f"/topics/{topic}", {"partitions": 4}, 201)
            http.done("POST", f"/groups/{group}/consumers", {"name": "c", "topics": [topic]}, 201)
            member = Member(kafka39, group, topic, "classic")
            mine, _ = shared(http, group, member)
            body = {"records": [{"value": "v", "partition": min(mine)}]}
            key = {"idempotency-key": '"k"'}
            first = http.post(f"/topics/{topic}/records", json=body, headers=key)
            assert first.status_code == 200, first.text
            process.kill()
            process.start()
        with Http(process) as http:
            again = http.post(f"/topics/{topic}/records", json=body, headers=key)
            assert again.headers.get("idempotent-replayed") == "true"
            batch = http.done("POST", f"/groups/{group}/consumers/c:poll", {"wait_ms": 10_000})
            assert len(batch["records"]) == 1
            http.done("POST", f"/groups/{group}/consumers/c:ack", {"ack": batch["ack"]})
            member.consumer.close()
            http.done("DELETE", f"/groups/{group}/consumers/c", status=204)
    finally:
        process.kill()
    assert "Traceback" not in process.read_log()


def test_a_group_of_the_new_protocol_is_shown_and_its_positions_are_not_taken_from_its_members(
    gateway: GatewayProcess, kafka: KafkaProcess, name: Callable[[], str]
) -> None:
    topic, group = name(), name()
    with Http(gateway) as http:
        http.done("PUT", f"/topics/{topic}", {"partitions": 2}, 201)
        member = Member(kafka, group, topic, "consumer")
        deadline = time.monotonic() + 60
        while member.owned() != {0, 1} and time.monotonic() < deadline:
            pass
        shown = http.done("GET", f"/groups/{group}")
        assert (shown["type"], len(shown["members"])) == ("consumer", 1)
        (one,) = shown["members"]
        assert (one["kind"], one["topics"]) == ("consumer", [topic])
        assert one["epoch"] == shown["assignment_epoch"] and one["target"] == one["partitions"]
        assert group in [one["group_id"] for one in http.done("GET", "/groups?page_size=1000")["items"]]
        position = {"offsets": [{"topic": topic, "partition": 0, "next_offset": 0}]}
        refused = http.request("PATCH", f"/groups/{group}/offsets", json=position)
        assert refused.status_code == 409, refused.text
        member.consumer.close()


def test_a_share_group_of_the_cluster_is_listed_and_shown(
    tools: Tools, tmp_path: Path, name: Callable[[], str]
) -> None:
    """A node of its own: share groups are a preview of Kafka 4.1, which has to be switched on."""
    topic, group = name(), name()
    node = KafkaProcess(tmp_path / "kafka", settings={"group.share.enable": "true"}).start()
    try:
        option = ("--bootstrap-server", node.bootstrap)
        said = tools.run(MAINS["features"], *option, "upgrade", "--feature", "share.version=1")
        assert said.exit == 0, said
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce(topic, b"v")
        assert producer.flush(30) == 0
        share_consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
        options = (*option, "--topic", topic, "--group", group, "--timeout-ms", "3000")
        assert "Processed a total" in (said := tools.run(share_consumer, *options)).err, said
        process = GatewayProcess(tmp_path / "data", node.bootstrap)
        try:
            with Http(process.start()) as http:
                listed = http.done("GET", "/groups?type=share")["items"]
                assert [(one["group_id"], one["type"]) for one in listed] == [(group, "share")]
                shown = http.done("GET", f"/groups/{group}")
                assert (shown["type"], shown["state"], shown["members"]) == ("share", "Empty", [])
                assert http.done("GET", f"/groups/{group}/lag")["partitions"] == []
        finally:
            process.kill()
        assert "Traceback" not in process.read_log()
    finally:
        node.kill()
