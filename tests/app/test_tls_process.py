"""A broker with TLS as its users run it: real clients, renewal, certificates of clients, what each client is told."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import kafka
import pytest
import trustme

from tests.broker_process import ROOT, BrokerProcess

# Brokers of its own, in processes of their own.
pytestmark = pytest.mark.slow
SECONDS = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Secured:
    """A broker with plain listeners and, beside them, listeners with TLS of each kind."""

    def __init__(self, directory: Path, rules: str, client_auth: str) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.clients = trustme.CA()
        self.ca_file, clients_file = directory / "ca.pem", directory / "clients.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.clients.cert_pem.write_to_path(clients_file)
        self.certificate, self.key = directory / "server.pem", directory / "server.key"
        self.issue()
        table = {
            "certificate": str(self.certificate),
            "key": str(self.key),
            "client_ca": str(clients_file),
            "client_auth": client_auth,
            "principal_mapping_rules": rules,
        }
        self.process = BrokerProcess(
            directory / "data",
            environment={"SLUICE_TLS": json.dumps({"default": table})},
            schemes=("https", "kafka?tls=default", "text?tls=default"),
        )

    def issue(self) -> bytes:
        """Put a new certificate into the files; returns it in DER."""
        issued = self.ca.issue_cert("127.0.0.1", "localhost")
        pem = issued.cert_chain_pems[0].bytes()
        for file, content in ((self.key, issued.private_key_pem.bytes()), (self.certificate, pem)):
            new = file.with_suffix(".new")
            new.write_bytes(content)
            new.chmod(0o600)
            new.replace(file)
        return ssl.PEM_cert_to_DER_cert(pem.decode())

    def client_certificate(self, name: str, authority: trustme.CA | None = None) -> tuple[Path, Path]:
        issued = (authority or self.clients).issue_cert(f"{name}@example.org", common_name=name)
        files = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(files[0])
        issued.private_key_pem.write_to_path(files[1])
        return files

    @property
    def https(self) -> str:
        return f"https://127.0.0.1:{self.process.ports['https']}"

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.process.ports['kafka?tls=default']}"

    def context(self, *certificate: Path) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if certificate:
            context.load_cert_chain(*certificate)
        return context

    def get(self, path: str, *certificate: Path) -> Any:
        with urllib.request.urlopen(
            self.https + path, context=self.context(*certificate), timeout=SECONDS
        ) as answer:
            return json.load(answer)

    def connect(self, port: str, *certificate: Path) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.process.ports[port]), timeout=SECONDS)
        return self.context(*certificate).wrap_socket(plain, server_hostname="127.0.0.1")


@contextlib.contextmanager
def running(directory: Path, rules: str, client_auth: str) -> Iterator[Secured]:
    secured = Secured(directory, rules, client_auth)
    try:
        secured.process.start()
        yield secured
    finally:
        secured.process.kill()
    assert "Traceback" not in secured.process.read_log(), secured.process.read_log()[-20_000:]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    rules = r"RULE:^CN=([^,\\]+),.*$/$1/L"
    with running(tmp_path_factory.mktemp("tls"), rules, "requested") as one:
        yield one


# --- real clients -----------------------------------------------------------------------------------------------


@pytest.mark.client("curl")
def test_curl_writes_and_reads_over_https(secured: Secured) -> None:
    curl = ["curl", "-sS", "--fail-with-body", "--cacert", str(secured.ca_file)]
    url = f"{secured.https}/api/v1/topics/curl/records"
    subprocess.run([*curl, "-d", "Hello", url], check=True, capture_output=True)
    read = subprocess.run(
        [*curl, f"{secured.https}/api/v1/topics/curl/partitions/0/records?offset=0"],
        check=True,
        capture_output=True,
    )
    assert json.loads(read.stdout)["records"][0]["value"] == "Hello"
    distrusted = subprocess.run(["curl", "-sS", url], capture_output=True, text=True)
    assert distrusted.returncode == 60


@pytest.mark.client("kcat")
def test_kcat_writes_and_reads(secured: Secured) -> None:
    kcat = [
        "kcat",
        "-b",
        secured.kafka,
        "-X",
        "security.protocol=ssl",
        "-X",
        f"ssl.ca.location={secured.ca_file}",
    ]
    text = "".join(f"line {n}\n" for n in range(1000))
    subprocess.run([*kcat, "-P", "-t", "kcat"], input=text, text=True, check=True, timeout=SECONDS)
    read = subprocess.run(
        [*kcat, "-C", "-t", "kcat", "-o", "beginning", "-e", "-q"],
        capture_output=True, text=True, check=True, timeout=SECONDS,
    )  # fmt: skip
    assert read.stdout == text


def librdkafka(secured: Secured, *certificate: Path) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": secured.kafka,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca_file),
    }
    if certificate:
        settings |= {"ssl.certificate.location": str(certificate[0]), "ssl.key.location": str(certificate[1])}
    return settings


def test_librdkafka_writes_and_reads(secured: Secured) -> None:
    certificate = secured.client_certificate("alice")
    producer = confluent_kafka.Producer(librdkafka(secured, *certificate))
    for number in range(100):
        producer.produce("librdkafka", bytes(100_000), key=str(number))
    assert producer.flush(SECONDS) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(librdkafka(secured, *certificate) | group)
    consumer.subscribe(["librdkafka"])
    keys: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS
    while len(keys) < 100 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            keys.append(message.key())
            assert message.value() == bytes(100_000)
    consumer.close()
    assert keys == [str(number).encode() for number in range(100)]


def test_kafka_python_writes_and_reads(secured: Secured) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.kafka,
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.ca_file),
    }
    producer = kafka.KafkaProducer(**settings)
    producer.send("kafka-python", b"value").get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=int(SECONDS * 1000), **settings
    )
    assert next(consumer).value == b"value"
    consumer.close()


def test_a_line_is_answered_over_tls(secured: Secured) -> None:
    with secured.connect("text?tls=default") as line:
        line.sendall(b"V1|7|PRODUCE|lines key:Hello\n")
        assert line.recv(1000).startswith(b"V1|7|OK|")


def test_the_end_of_a_line_client_is_no_event_for_the_log(secured: Secured) -> None:
    with secured.connect("text?tls=default") as line:
        line.sendall(b"V1|9|HELP|\n")
        assert line.recv(1000).startswith(b"V1|9|OK|")
        line.unwrap().close()
    assert "eof_received" not in secured.process.read_log()


def test_kafka_s_tools_are_told_which_listeners_have_tls(secured: Secured) -> None:
    admin = confluent_kafka.admin.AdminClient(librdkafka(secured))
    broker = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.BROKER, "1")
    (future,) = admin.describe_configs([broker]).values()
    found = future.result(SECONDS)
    port, plain = (secured.process.ports[name] for name in ("kafka?tls=default", "kafka"))
    assert found["advertised.listeners"].value == f"SSL://127.0.0.1:{port}"
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{port}"
    assert found["listeners"].value == listeners


def test_our_own_command_trusts_the_authority_of_ca(secured: Secured) -> None:
    def sluice(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app", *arguments, "--url", secured.https]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)

    made = sluice("topics", "create", "ours", "--ca", str(secured.ca_file))
    assert made.returncode == 0, made.stderr
    distrusted = sluice("topics", "list")
    assert (
        distrusted.returncode != 0 and "is not trusted" in distrusted.stderr and "--ca" in distrusted.stderr
    )
    wrong = sluice("topics", "list", "--ca", str(secured.key.with_name("nothing")))
    assert wrong.returncode == 2 and "Cannot read" in wrong.stderr


# --- what is refused --------------------------------------------------------------------------------------------


def test_plain_http_on_the_tls_port_is_answered_400(secured: Secured) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(secured.https.replace("https", "http"), timeout=SECONDS)
    assert (
        caught.value.code == 400
        and json.load(caught.value)["detail"] == "This listener speaks TLS: use https://."
    )


@pytest.mark.parametrize("port", ["kafka", "http"])
def test_tls_on_a_plain_port_is_told_in_the_log(secured: Secured, port: str) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secured.connect(port)
    what = {"kafka": "it speaks TLS, and this listener does not", "http": "the client speaks TLS"}[port]
    until(lambda: what in secured.process.read_log())


def test_http_is_offered_as_the_protocol(secured: Secured) -> None:
    context = secured.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    for port, wanted in (("https", "http/1.1"), ("kafka?tls=default", None)):
        plain = socket.create_connection(("127.0.0.1", secured.process.ports[port]), timeout=SECONDS)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            assert client.selected_alpn_protocol() == wanted


def test_a_certificate_of_a_stranger_is_refused(secured: Secured) -> None:
    stranger = secured.client_certificate("mallory", trustme.CA())
    with pytest.raises(OSError):
        secured.get("/healthz", *stranger)
    with secured.connect("https") as anonymous:
        anonymous.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert anonymous.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_certificate_without_a_principal_is_refused(secured: Secured) -> None:
    """The rule asks for a name without an escaped comma."""
    for port in ("https", "kafka?tls=default"):
        with secured.connect(port, *secured.client_certificate("a,OU=admin")) as client:
            with contextlib.suppress(OSError):
                client.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(OSError):
                assert client.recv(1000) == b""
    until(lambda: secured.process.read_log().count("no principal mapping rule holds") >= 2)


@pytest.mark.client("sslscan")
@pytest.mark.parametrize("port", ["https", "kafka?tls=default"])
def test_a_scanner_finds_nothing_weak(secured: Secured, port: str) -> None:
    command = ["sslscan", "--no-colour", "--show-sigs", f"127.0.0.1:{secured.process.ports[port]}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    versions = dict(re.findall(r"^((?:SSL|TLS)v[\d.]+) +(enabled|disabled)$", found, re.M))
    assert {name for name, state in versions.items() if state == "enabled"} == {"TLSv1.2", "TLSv1.3"}
    suites = re.findall(r"^(?:Preferred|Accepted) +TLSv1\.\d +\d+ bits +(\S+)", found, re.M)
    assert len(suites) >= 6 and all("GCM" in suite or "POLY1305" in suite for suite in suites)
    assert all(suite.startswith(("TLS_", "ECDHE-")) for suite in suites)
    assert "Session renegotiation not supported" in found
    assert " vulnerable" not in found.replace("not vulnerable", "")


# What testssl.sh calls a weakness; beside it warns of what the machine's own openssl cannot try.
WEAK = {"LOW", "MEDIUM", "HIGH", "CRITICAL", "FATAL"}


@pytest.mark.slow
@pytest.mark.client("testssl")
def test_testssl_finds_nothing_weak(secured: Secured, tmp_path: Path) -> None:
    """Both ports at once: versions, suites, forward secrecy and all known attacks, half a minute in all."""
    scans = {}
    for port in ("https", "kafka?tls=default"):
        found = tmp_path / f"{len(scans)}.json"
        command = [
            "testssl",
            "--quiet",
            "--color",
            "0",
            "--warnings",
            "batch",
            "--ip",
            "127.0.0.1",
            "--nodns",
            "none",
        ]
        command += ["--fast", "-p", "-s", "-f", "-U", "--jsonfile", str(found)]
        command.append(f"127.0.0.1:{secured.process.ports[port]}")
        scans[found] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for found, scan in scans.items():
        said, _ = scan.communicate(timeout=4 * SECONDS)
        assert found.is_file(), said
        findings = json.loads(found.read_text())
        assert {"TLS1_2", "TLS1_3", "heartbleed", "ROBOT"} <= {one["id"] for one in findings}, said
        assert [one for one in findings if one["severity"] in WEAK] == []


# --- what each client is told -----------------------------------------------------------------------------------


def test_each_listener_tells_its_own_address(secured: Secured) -> None:
    tls = confluent_kafka.admin.AdminClient(librdkafka(secured)).list_topics(timeout=SECONDS)
    plain = confluent_kafka.admin.AdminClient({"bootstrap.servers": secured.process.kafka})
    told = [found.brokers[1].port for found in (tls, plain.list_topics(timeout=SECONDS))]
    assert told == [secured.process.ports["kafka?tls=default"], secured.process.ports["kafka"]]


# --- renewal ----------------------------------------------------------------------------------------------------


def shown(secured: Secured) -> bytes | None:
    with secured.connect("https") as client:
        return client.getpeercert(binary_form=True)


def test_a_signal_loads_the_certificate_and_open_connections_stay(secured: Secured) -> None:
    with secured.connect("text?tls=default") as line:
        before = shown(secured)
        new = secured.issue()
        assert shown(secured) == before != new
        secured.process.process.send_signal(signal.SIGUSR1)  # type: ignore[union-attr]
        until(lambda: shown(secured) == new)
        line.sendall(b"V1|8|PRODUCE|lines key:again\n")
        assert line.recv(1000).startswith(b"V1|8|OK|")
    text = urllib.request.urlopen(f"{secured.process.http}/metrics", timeout=SECONDS).read().decode()
    assert re.search(
        r'^sluice_tls_certificate_loads_total\{certificate="default",result="loaded"\} 2\.0$', text, re.M
    )
    not_after = re.search(r"^sluice_tls_certificate_not_after_seconds\{.*\} (\S+)$", text, re.M)
    assert not_after is not None and float(not_after[1]) > time.time()
    assert re.search(r'^sluice_tls_handshakes_total\{listener="http",result="completed"\} [1-9]', text, re.M)
    assert re.search(r'^sluice_tls_handshakes_total\{listener="kafka",result="completed"\} [1-9]', text, re.M)


def test_a_mismatched_pair_leaves_the_former_certificate(secured: Secured) -> None:
    before = shown(secured)
    good = secured.certificate.read_bytes()
    secured.certificate.write_bytes(trustme.CA().issue_cert("127.0.0.1").cert_chain_pems[0].bytes())
    secured.process.process.send_signal(signal.SIGUSR1)  # type: ignore[union-attr]
    until(lambda: "does not belong to the certificate" in secured.process.read_log())
    assert shown(secured) == before
    secured.certificate.write_bytes(good)


# --- users over TLS ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_user_logs_in_over_tls(tmp_path: Path, mechanism: str) -> None:
    """The user of the login counts, whatever certificate the client has shown."""
    password = tmp_path / "password"
    password.write_text("the admin's own password")
    password.chmod(0o600)
    listener = f"kafka?auth={mechanism.lower()}&tls=default"
    https = "https?auth=basic,token"
    process = BrokerProcess(
        tmp_path / "data",
        options=["--tls", "auto"],
        environment={"SLUICE_ADMIN_PASSWORD_FILE": str(password)},
        schemes=(listener, https),
    )
    try:
        process.start()
        ca = str(tmp_path / "data" / "tls-default.pem")
        settings = {
            "bootstrap.servers": f"127.0.0.1:{process.ports[listener]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca,
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": password.read_text(),
        }
        producer = confluent_kafka.Producer(settings)
        producer.produce("t", b"value")
        assert producer.flush(SECONDS) == 0
        context = ssl.create_default_context(cafile=ca)
        url = f"https://127.0.0.1:{process.ports[https]}/api/v1/topics/t"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=context, timeout=SECONDS)
        login = base64.b64encode(f"admin:{password.read_text()}".encode()).decode()
        request = urllib.request.Request(url, headers={"authorization": f"Basic {login}"})
        assert urllib.request.urlopen(request, context=context, timeout=SECONDS).status == 200
    finally:
        process.kill()


# --- starts -----------------------------------------------------------------------------------------------------


def test_a_required_certificate_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, "DEFAULT", "required") as secured:
        with pytest.raises(OSError):
            secured.get("/readyz")
        assert secured.get("/healthz", *secured.client_certificate("alice"))["status"]


def test_auto_makes_a_certificate_that_clients_trust_by_its_file(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", options=["--tls", "auto"], schemes=("https",))
    try:
        process.start()
        file = tmp_path / "data" / "tls-default.pem"
        context = ssl.create_default_context(cafile=str(file))
        url = f"https://localhost:{process.ports['https']}/readyz"
        with urllib.request.urlopen(url, context=context, timeout=SECONDS) as answer:
            assert answer.status == 200
        log = process.read_log()
    finally:
        process.kill()
    assert re.search(r"Self-signed certificate \S+tls-default\.pem, SHA-256 [0-9a-f]{64}\n", log)
    assert file.with_suffix(".key").stat().st_mode & 0o777 == 0o600
