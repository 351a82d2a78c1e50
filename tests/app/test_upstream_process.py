"""A gateway as its users run it: two processes, an embedded Sluice as the cluster, and a gateway over it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import ROOT, BrokerProcess
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.slow

SECONDS = 60.0
V2 = "application/vnd.kafka.v2+json"
PASSWORD = "the gateway's own password"


class Gateway(GatewayProcess):
    """A gateway with properties for its client, which gives up after `patience_ms`."""

    def __init__(
        self,
        data_dir: Path,
        servers: str,
        *,
        properties: str = "",
        patience_ms: int = 5_000,
        environment: dict[str, str] | None = None,
    ) -> None:
        file = data_dir.with_name(data_dir.name + ".properties")
        file.touch(mode=0o600)
        file.write_text(f"request.timeout.ms={patience_ms}\n{properties}")
        super().__init__(data_dir, servers, options=["--upstream-config", str(file)], environment=environment)

    def refused(self) -> str:
        """Start it, and return what it says when it gives up."""
        self.spawn()
        assert self.process is not None
        assert self.process.wait(SECONDS) == 1, self.read_log()
        self.process = None
        (line,) = [line for line in self.read_log().splitlines() if line.startswith("sluice: ")]
        return line


def client(process: BrokerProcess) -> httpx.Client:
    """A client of its HTTP port."""
    return httpx.Client(base_url=process.http, timeout=SECONDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The cluster of tests that leave it running."""
    environment = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    process = BrokerProcess(tmp_path_factory.mktemp("cluster") / "data", environment=environment)
    yield process.start()
    process.kill()


@pytest.fixture(scope="module")
def gateway(cluster: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A gateway over it, of tests that leave it running."""
    process = Gateway(tmp_path_factory.mktemp("gateway") / "data", cluster.kafka)
    yield process.start()
    process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()[-5_000:]


@pytest.fixture
def http(gateway: BrokerProcess) -> Iterator[httpx.Client]:
    """A client of the gateway."""
    with client(gateway) as made:
        yield made


# --- surfaces -------------------------------------------------------------------------------------------------


def test_the_native_surface_serves_the_cluster(http: httpx.Client, cluster: BrokerProcess) -> None:
    made = http.put("/api/v1/topics/native", json={"partitions": 3, "configs": {"retention.ms": "3600000"}})
    assert made.status_code == 201 and made.json()["partitions"] == 3, made.text
    records = [{"key": f"k{n}", "value": {"n": n}} for n in range(20)]
    written = http.post("/api/v1/topics/native/records", json={"records": records})
    assert written.status_code == 200 and len(written.json()["records"]) == 20, written.text
    page = http.get("/api/v1/topics/native/records", params={"from": "earliest", "limit": 50}).json()
    assert sorted(one["value"]["n"] for one in page["records"]) == list(range(20))
    with client(cluster) as direct:
        shown = direct.get("/api/v1/topics/native").json()
        assert shown["configs"] == {"retention.ms": "3600000"}
        assert sum(one["latest"] for one in shown["partition_details"]) == 20
    detail = http.get("/api/v1/topics/native").json()
    assert all(one["size_bytes"] is None for one in detail["partition_details"])
    first = http.get(
        "/api/v1/topics/native/partitions/0/records/0", headers={"accept": "application/octet-stream"}
    )
    assert first.status_code == 200 and json.loads(first.content)["n"] in range(20)


def test_a_long_poll_is_answered_by_the_write_of_another_client(
    http: httpx.Client, cluster: BrokerProcess
) -> None:
    http.put("/api/v1/topics/poll", json={"partitions": 1})
    answers: list[httpx.Response] = []

    def wait() -> None:
        query = {"offset": "latest", "wait_ms": 30_000}
        answers.append(
            httpx.get(
                f"{str(http.base_url).rstrip('/')}/api/v1/topics/poll/partitions/0/records",
                params=query,
                timeout=60,
            )
        )

    waiting = threading.Thread(target=wait)
    waiting.start()
    began = time.monotonic()
    with client(cluster) as direct:
        while not answers and time.monotonic() - began < SECONDS:
            direct.post("/api/v1/topics/poll/records", content=b"from elsewhere").raise_for_status()
            waiting.join(0.5)
    waiting.join(SECONDS)
    assert answers[0].json()["records"][0]["value"] == "from elsewhere"


def test_an_event_stream_has_what_was_written_and_what_comes(http: httpx.Client) -> None:
    http.post("/api/v1/topics/stream/records", content=b"one").raise_for_status()
    values: list[str] = []
    query, headers = {"from": "earliest"}, {"accept": "text/event-stream"}
    with http.stream("GET", "/api/v1/topics/stream/records", params=query, headers=headers) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: ") and '"value"' in line:
                values.append(json.loads(line[6:])["value"])
            if '"cursor"' in line and values == ["one"]:
                httpx.post(
                    f"{str(http.base_url).rstrip('/')}/api/v1/topics/stream/records", content=b"two"
                ).raise_for_status()
            if len(values) == 2:
                break
    assert values == ["one", "two"]


def test_the_v2_surface_writes_and_reads_with_an_instance(http: httpx.Client) -> None:
    binary = "application/vnd.kafka.binary.v2+json"
    records = {"records": [{"value": "aGVsbG8="}]}
    written = http.post("/topics/v2", content=json.dumps(records), headers={"content-type": binary})
    assert written.status_code == 200 and written.json()["offsets"][0]["offset"] == 0, written.text
    assert "v2" in http.get("/topics").json()
    options = {"name": "i", "format": "binary", "auto.offset.reset": "earliest"}
    made = http.post("/consumers/v2g", content=json.dumps(options), headers={"content-type": V2})
    assert made.status_code == 200, made.text
    subscription = json.dumps({"topics": ["v2"]})
    subscribed = http.post(
        "/consumers/v2g/instances/i/subscription", content=subscription, headers={"content-type": V2}
    )
    assert subscribed.status_code == 204, subscribed.text
    began, read = time.monotonic(), []
    while not read and time.monotonic() - began < SECONDS:
        answer = http.get("/consumers/v2g/instances/i/records?timeout=2000", headers={"accept": binary})
        assert answer.status_code == 200, answer.text
        read = answer.json()
    assert [one["value"] for one in read] == ["aGVsbG8="]
    assert http.delete("/consumers/v2g/instances/i", headers={"content-type": V2}).status_code == 204


def test_the_console_its_files_and_the_documents_are_served(http: httpx.Client) -> None:
    page = http.get("/console")
    assert page.status_code == 200 and 'data-needs="transactions"' in page.text
    assert "data-needs" in http.get("/console/capabilities.js").text
    assert http.get("/openapi.json").json()["openapi"].startswith("3.1")
    assert http.get("/docs").status_code == 200


def test_the_overview_names_capabilities_and_the_brokers_of_the_cluster(
    http: httpx.Client, cluster: BrokerProcess
) -> None:
    overview = http.get("/api/v1/").json()
    assert "upstream" in overview["capabilities"] and "records" in overview["capabilities"]
    assert not {"transactions", "kafka-port", "roles", "sizes"} & set(overview["capabilities"])
    assert "protocol_versions" not in overview["links"]
    with client(cluster) as direct:
        assert overview["cluster_id"] == direct.get("/api/v1/").json()["cluster_id"]
        assert "upstream" not in direct.get("/api/v1/").json()["capabilities"]
    brokers = [{"broker_id": 1, "kafka": cluster.kafka, "listeners": [f"kafka://{cluster.kafka}"]}]
    assert http.get("/api/v1/brokers").json()["items"] == brokers
    assert http.get("/api/v1/cluster").json()["brokers"] == brokers
    assert http.get("/brokers").json() == {"brokers": [1]}


NOT_HERE = [
    ("POST", "/api/v1/transactions", "transactions"),
    ("GET", "/api/v1/transactions", "transactions"),
    ("GET", "/api/v1/transactions/t", "transactions"),
    ("DELETE", "/api/v1/transactions/t", "transactions"),
    ("POST", "/api/v1/transactions:begin", "transactions"),
    ("POST", "/api/v1/transactions/t:commit", "transactions"),
    ("POST", "/api/v1/transactions:commit", "transactions"),
    ("GET", "/api/v1/protocol-versions", "kafka-port"),
    ("POST", "/api/v1/cluster:lead", "roles"),
    ("POST", "/api/v1/topics/t/partitions/0:role", "roles"),
    ("PUT", "/api/v1/groups/g", "group-take-over"),
]


@pytest.mark.parametrize(("method", "path", "capability"), NOT_HERE)
def test_what_a_gateway_cannot_do_is_501_with_the_capability(
    http: httpx.Client, method: str, path: str, capability: str
) -> None:
    refused = http.request(method, path, json={} if method in ("POST", "PUT") else None)
    assert refused.status_code == 501, refused.text
    problem = refused.json()
    assert problem["type"] == "/problems/missing-capability" and problem["capability"] == capability
    assert problem["detail"].endswith(".") and problem["retriable"] is False


def test_a_write_in_a_transaction_is_501_and_writes_nothing(http: httpx.Client) -> None:
    http.put("/api/v1/topics/outside", json={})
    refused = http.post("/api/v1/topics/outside/records", content=b"x", headers={"transaction": "t"})
    assert refused.status_code == 501 and refused.json()["capability"] == "transactions"
    assert http.get("/api/v1/topics/outside").json()["partition_details"][0]["latest"] == 0


def test_the_command_line_says_what_is_missing(gateway: BrokerProcess) -> None:
    command = [sys.executable, "-m", "app", "transactions", "list", "--url", gateway.http]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.returncode != 0 and "This gateway has no transactions over HTTP." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_works_on_a_gateway(gateway: BrokerProcess) -> None:
    def run(*words: str, given: str = "") -> str:
        command = [sys.executable, "-m", "app", *words, "--url", gateway.http]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    run("topics", "create", "cli", "--partitions", "2", "--config", "retention.ms=3600000")
    assert "1 record written" in run("produce", "cli", given="a\n")
    shown = run("topics", "describe", "cli", "--all")
    assert "retention.ms" in shown and "created" in shown and "None" not in shown
    assert "cli" in run("topics", "list", "--long")
    assert "EARLIEST" in run("offsets", "at", "cli")
    run("groups", "reset", "cli-group", "--topic", "cli", "--to", "earliest", "--execute")
    assert "cli-group" in run("groups", "list")
    assert "cli" in run("groups", "describe", "cli-group")
    assert run("consume", "cli", "--from", "earliest", "--limit", "1").strip().endswith("a")
    run("topics", "delete", "cli", "--yes")


def test_health_and_metrics_tell_of_the_cluster(http: httpx.Client, cluster: BrokerProcess) -> None:
    assert http.get("/livez").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    health = http.get("/healthz").json()
    assert health["status"] == "ok"
    assert health["cluster"]["brokers"] == [{"broker_id": 1, "address": cluster.kafka, "state": "connected"}]
    text = http.get("/metrics").text
    assert 'sluice_upstream_requests_total{api="Metadata"}' in text
    assert 'sluice_upstream_connections{broker="1"}' in text
    assert "sluice_upstream_unsent_bytes 0.0" in text and "sluice_transactional_ids" not in text


# --- deaths and stops -----------------------------------------------------------------------------------------


def poll(http: httpx.Client, **body: Any) -> dict[str, Any]:
    """Poll the consumer `one` of the group `g` until a batch comes."""
    began = time.monotonic()
    while time.monotonic() - began < SECONDS:
        answer = http.post("/api/v1/groups/g/consumers/one:poll", json={"wait_ms": 2_000, **body})
        if answer.status_code == 200 and answer.json()["records"]:
            found: dict[str, Any] = answer.json()
            return found
        assert answer.status_code in (200, 503, 504), answer.text
        time.sleep(0.1)
    raise AssertionError("no batch came")


def test_a_gateway_that_was_killed_continues_with_tokens_and_keys(
    tmp_path: Path, cluster: BrokerProcess
) -> None:
    process = Gateway(tmp_path / "gateway", cluster.kafka)
    try:
        with client(process.start()) as http:
            key = {"idempotency-key": "k-1"}
            written = http.post("/api/v1/topics/killed/records", content=b"once", headers=key)
            assert written.status_code == 200, written.text
            made = {"name": "one", "topics": ["killed"], "start": "earliest"}
            assert http.post("/api/v1/groups/g/consumers", json=made).status_code == 201
            before = poll(http)
        process.kill()
        with client(process.start()) as http:
            after = poll(http)
            assert (after["ack"], after["redelivered"]) == (before["ack"], True)
            assert [one["offset"] for one in after["records"]] == [0]
            acked = http.post("/api/v1/groups/g/consumers/one:ack", json={"ack": after["ack"]})
            assert acked.status_code == 200, acked.text
            again = http.post("/api/v1/topics/killed/records", content=b"once", headers=key)
            assert again.status_code == 200 and again.json() == written.json()
            assert http.get("/api/v1/topics/killed").json()["partition_details"][0]["latest"] == 1
        with client(cluster) as direct:
            offsets = direct.get("/api/v1/groups/g/offsets").json()
            assert [one["next_offset"] for one in offsets["offsets"] if one["topic"] == "killed"] == [1]
        assert process.stop() == 0
        assert "Traceback" not in process.read_log()
    finally:
        process.kill()


def test_a_cluster_that_was_killed_and_is_back_is_served_again(tmp_path: Path) -> None:
    cluster = BrokerProcess(tmp_path / "cluster").start()
    gateway = Gateway(tmp_path / "gateway", cluster.kafka, patience_ms=1_000)
    try:
        with client(gateway.start()) as http:
            assert http.post("/api/v1/topics/t/records", content=b"before").status_code == 200
            cluster.kill()
            refused = http.post("/api/v1/topics/t/records", content=b"lost?", timeout=SECONDS)
            assert refused.status_code in (503, 504), refused.text
            assert refused.json()["detail"]
            if refused.status_code == 503:
                assert int(refused.headers["retry-after"]) >= 1
            # One broker's trouble takes no gateway out of its load balancer; the alarm is another address.
            assert http.get("/readyz").status_code == 200
            unwell = http.get("/healthz")
            assert unwell.status_code == 503 and unwell.json()["status"] == "cluster unreachable"
            assert unwell.json()["cluster"]["brokers"][0]["state"] == "unreachable"
            cluster.start()
            began = time.monotonic()
            while (written := http.post("/api/v1/topics/t/records", content=b"after")).status_code != 200:
                assert time.monotonic() - began < SECONDS, written.text
                time.sleep(0.1)
            page = http.get("/api/v1/topics/t/partitions/0/records?offset=0").json()
            values = [one["value"] for one in page["records"]]
            assert values[0] == "before" and values[-1] == "after"
            assert http.get("/healthz").json()["status"] == "ok"
        assert "Traceback" not in gateway.read_log(), gateway.read_log()
    finally:
        gateway.kill()
        cluster.kill()


def test_a_stop_answers_what_waits(tmp_path: Path, cluster: BrokerProcess) -> None:
    gateway = Gateway(tmp_path / "gateway", cluster.kafka).start()
    answers: list[int] = []
    ends: list[str] = []
    with client(gateway) as http:
        http.put("/api/v1/topics/waits", json={})

    def wait() -> None:
        url = f"{gateway.http}/api/v1/topics/waits/partitions/0/records?offset=latest&wait_ms=60000"
        answers.append(httpx.get(url, timeout=SECONDS).status_code)

    def listen() -> None:
        url = f"{gateway.http}/api/v1/topics/waits/records"
        with httpx.stream("GET", url, headers={"accept": "text/event-stream"}, timeout=SECONDS) as answer:
            ends.extend(answer.iter_lines())

    waiting = [threading.Thread(target=one) for one in (wait, listen)]
    try:
        for one in waiting:
            one.start()
        with client(gateway) as http:
            began = time.monotonic()
            while "sluice_waiting_polls 2.0" not in http.get("/metrics").text:
                assert time.monotonic() - began < SECONDS
                time.sleep(0.05)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(SECONDS) == 0
        for one in waiting:
            one.join(SECONDS)
        assert answers == [200]
        assert any("event: " in line for line in ends), ends
        assert "Traceback" not in gateway.read_log()
    finally:
        gateway.kill()


# --- starts ---------------------------------------------------------------------------------------------------


def test_a_start_without_a_cluster_says_what_was_tried(tmp_path: Path) -> None:
    said = Gateway(tmp_path / "g", "127.0.0.1:1,127.0.0.1:2", patience_ms=1_000).refused()
    assert said.startswith("sluice: No broker of the Kafka cluster answers. Tried 127.0.0.1:1, 127.0.0.1:2: ")
    assert "--upstream" in said and "security.protocol" in said


def test_a_start_that_waits_for_its_cluster_can_be_stopped(tmp_path: Path) -> None:
    process = Gateway(tmp_path / "g", "127.0.0.1:1", patience_ms=600_000)
    process.spawn()
    try:
        began = time.monotonic()
        while "connecting to the Kafka cluster" not in process.read_log():
            assert time.monotonic() - began < SECONDS
            time.sleep(0.05)
        assert process.process is not None
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(SECONDS) == 1
        assert "Stopped before the Kafka cluster has answered." in process.read_log()
        assert "Traceback" not in process.read_log()
    finally:
        process.kill()


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A cluster whose clients log in, over TLS."""
    home = tmp_path_factory.mktemp("users")
    password = home / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    process = BrokerProcess(
        home / "data",
        options=["--tls", "auto"],
        environment={"SLUICE_ADMIN_PASSWORD_FILE": str(password)},
        schemes=("kafka?auth=plain,scram-sha-512&tls=default",),
    )
    yield process.start()
    process.kill()


def secure(process: BrokerProcess, password: str = PASSWORD, *lines: str) -> tuple[str, str]:
    """The address of its listener with users, and properties for it."""
    port = process.ports["kafka?auth=plain,scram-sha-512&tls=default"]
    properties = [
        "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=admin",
        f"sasl.password={password}", *lines,
    ]  # fmt: skip
    return f"127.0.0.1:{port}", "\n".join(properties)


def authority(process: BrokerProcess) -> str:
    """The property that names its certificate."""
    return f"ssl.ca.location={process.data_dir / 'tls-default.pem'}"


def test_a_wrong_password_is_told_and_not_shown(tmp_path: Path, with_users: BrokerProcess) -> None:
    servers, properties = secure(with_users, "s3cr3t-and-wrong", authority(with_users))
    process = Gateway(tmp_path / "g", servers, properties=properties)
    said = process.refused()
    assert said.startswith(f"sluice: The Kafka cluster at {servers} refuses the login: ")
    assert "'admin'" in said and "SCRAM-SHA-512" in said and "sasl.password" in said
    assert "s3cr3t" not in process.read_log()


def test_an_authority_that_is_not_known_is_told(tmp_path: Path, with_users: BrokerProcess) -> None:
    servers, properties = secure(with_users)
    said = Gateway(tmp_path / "g", servers, properties=properties, patience_ms=1_000).refused()
    assert said.startswith(f"sluice: No TLS connection to the Kafka cluster at {servers}: "), said
    assert "ssl.ca.location" in said


def test_a_gateway_logs_in_over_tls_and_has_users_of_its_own(
    tmp_path: Path, with_users: BrokerProcess
) -> None:
    servers, properties = secure(with_users, PASSWORD, authority(with_users))
    own = tmp_path / "own-password"
    own.write_text("another, of the gateway")
    own.chmod(0o600)
    process = Gateway(
        tmp_path / "g", servers, properties=properties, environment={"SLUICE_ADMIN_PASSWORD_FILE": str(own)}
    )
    process.ports = {"http?auth=basic,token": 0, "http": 0}
    try:
        process.start()
        url = f"http://127.0.0.1:{process.ports['http?auth=basic,token']}"
        with httpx.Client(base_url=url, timeout=SECONDS) as http:
            assert http.post("/api/v1/topics/t/records", content=b"x").status_code == 401
            assert (
                http.post("/api/v1/topics/t/records", content=b"x", auth=("admin", PASSWORD)).status_code
                == 401
            )
            admin = ("admin", own.read_text())
            assert http.post("/api/v1/topics/t/records", content=b"x", auth=admin).status_code == 200
            token = http.post("/api/v1/tokens", json={}, auth=admin).json()["token"]
            bearer = {"authorization": f"Bearer {token}"}
            read = http.get("/api/v1/topics/t/partitions/0/records?offset=0", headers=bearer)
            assert read.status_code == 200 and read.json()["records"][0]["value"] == "x"
            made = http.post(
                "/api/v1/users", json={"name": "alice", "password": "alice's password"}, auth=admin
            )
            assert made.status_code == 201, made.text
            # Without a rule of the gateway, alice may do nothing, whatever the cluster would let the gateway do.
            alice = ("alice", "alice's password")
            assert http.get("/api/v1/topics/t/partitions/0/records?offset=0", auth=alice).status_code == 403
            answers = [
                http.get(path, auth=admin).text
                for path in ("/api/v1/", "/api/v1/cluster", "/healthz", "/metrics")
            ]
        assert PASSWORD not in process.read_log() and not any(PASSWORD in text for text in answers)
        assert process.stop() == 0
    finally:
        process.kill()


def test_the_data_directory_belongs_to_one_cluster(tmp_path: Path, cluster: BrokerProcess) -> None:
    first = Gateway(tmp_path / "g", cluster.kafka).start()
    assert first.stop() == 0
    other = BrokerProcess(tmp_path / "other").start()
    try:
        said = Gateway(tmp_path / "g", other.kafka).refused()
        assert "holds consumers and keys of the Kafka cluster" in said and "--data-dir" in said
        said = _refused_broker(tmp_path / "g")
        assert "belongs to a gateway over a Kafka cluster" in said and "--upstream" in said
        assert other.stop() == 0
        said = Gateway(tmp_path / "other", cluster.kafka).refused()
        assert "holds the topics of an embedded broker" in said
    finally:
        other.kill()


def _refused_broker(data_dir: Path, options: Sequence[str] = ("--listener", "http://127.0.0.1:0")) -> str:
    command = [sys.executable, "-m", "app", "serve", "--data-dir", str(data_dir), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.returncode == 1
    return done.stderr


def test_a_property_that_is_not_known_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.pasword=x\n")
    options = ["--upstream", "127.0.0.1:1", "--upstream-config", str(file)]
    command = [sys.executable, "-m", "app", "serve", "--data-dir", str(tmp_path / "g"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.returncode == 2
    assert "Did you mean sasl.password?" in done.stderr and "Traceback" not in done.stderr
