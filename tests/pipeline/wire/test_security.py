"""The wire client over TLS and with a login: each mechanism, a session that ends, and what is refused at once."""

from __future__ import annotations

import pickle
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from core.records.record import NewRecord
from core.vocabulary.partition import LATEST
from pipeline.wire import connection as module
from pipeline.wire.cluster import ClientSettings, Cluster
from pipeline.wire.errors import AuthenticationError, ConnectionLostError, KafkaError
from pipeline.wire.fetch import PartitionFetcher
from pipeline.wire.producer import Producer
from pipeline.wire.security import MECHANISMS, Login, Security, Tls
from tests.clients.wire import NOW
from tests.pipeline.topics import Topics
from tests.secured import PASSWORD, SASL_SSL, SSL, USER, Secured

# Errors that do not pass must come at once, whatever the patience is.
PATIENCE = 600.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


@pytest.fixture
def topics(secured: Secured) -> Iterator[Topics]:
    with Topics(secured.broker) as made:
        yield made


def cluster(address: tuple[str, int], tls: Tls | None, login: Login | None = None) -> Cluster:
    return Cluster(ClientSettings((address,), retry=PATIENCE, security=Security(tls, login)))


def trusting(secured: Secured) -> Tls:
    return Tls(str(secured.ca))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_with_each_mechanism(secured: Secured, topics: Topics, mechanism: str) -> None:
    name = topics.create(f"login-{mechanism}")
    login = Login(mechanism, USER, PASSWORD)
    with cluster(secured.address(SASL_SSL), trusting(secured), login) as one:
        producer = Producer(one)
        producer.send(name, 0, [NewRecord(value=b"secret")], now_ms=NOW)
        producer.flush()
        assert one.offsets({(name, 0): LATEST}) == {(name, 0): 1}
    # The certificates of the machine do not have the authority of the test.
    with (
        cluster(secured.address(SASL_SSL), Tls(), login) as one,
        pytest.raises(AuthenticationError, match=r"certificate of the broker .* is refused"),
    ):
        one.topics(None)


def test_a_password_file_and_a_token_work_as_a_password(secured: Secured) -> None:
    address, tls = secured.address(SASL_SSL), trusting(secured)
    for login in (
        Login("SCRAM-SHA-512", USER, password_file=str(secured.password_file)),
        Login("PLAIN", USER, secured.token()),
    ):
        with cluster(address, tls, login) as one:
            one.topics(None)


def test_a_client_shows_its_certificate(secured: Secured, topics: Topics) -> None:
    name = topics.create("certified")
    tls = Tls(str(secured.ca), str(secured.certificate), str(secured.key))
    with cluster(secured.address(SSL), tls) as one:
        assert one.topics([name]) == {name: [0]}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_an_error_at_once(secured: Secured, mechanism: str) -> None:
    with (
        cluster(secured.address(SASL_SSL), trusting(secured), Login(mechanism, USER, "wrong")) as one,
        pytest.raises(AuthenticationError) as raised,
    ):
        one.topics(None)
    assert f"no login of user 'alice' with {mechanism}" in str(raised.value)
    assert "SASL_AUTHENTICATION_FAILED" in str(raised.value) and "wrong" not in str(raised.value)


def test_a_session_that_ends_is_renewed_between_answers(
    secured: Secured, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with answers under way, and with records that the caller still decodes."""
    logins = []
    log_in = module.log_in
    # The broker gives sessions of an hour, and refuses to renew one that is younger than a second.
    monkeypatch.setattr(module, "_RENEW_AFTER", 1.05 / 3600)
    monkeypatch.setattr(module, "log_in", lambda *given: logins.append(log_in(*given)))
    name = topics.create("renewed")
    login = Login("PLAIN", USER, PASSWORD)
    with cluster(secured.address(SASL_SSL), trusting(secured), login) as one:
        producer, written = Producer(one), 0
        while len(logins) < 2:
            producer.send(name, 0, [NewRecord(value=b"%d" % written)], now_ms=NOW)
            written += 1
        producer.flush()
        assert [message.value for message in topics.records(name)] == [b"%d" % n for n in range(written)]
        fetcher = PartitionFetcher(one, name, 0)
        fetcher.ask(0)
        while len(logins) < 3:
            fetched = fetcher.take()
            before = bytes(fetched.records)
            fetcher.ask(0)
            assert bytes(fetched.records) == before
        assert fetcher.take().high_watermark == written


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[tuple[str, int]]:
    """A server that ends each connection after its TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    raw, _ = server.accept()
                except OSError:
                    return
                with raw, suppress(OSError):
                    context.wrap_socket(raw, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("broker.example.org")
    ca, certificate, key = tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key"
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    with tls_server(certificate, key) as address:
        with (
            cluster(address, Tls(str(ca))) as one,
            pytest.raises(AuthenticationError, match=r"not valid for '127.0.0.1'"),
        ):
            one.topics(None)
        # Without the check the handshake succeeds; then there is no Kafka, which may pass.
        settings = ClientSettings((address,), retry=0, security=Security(Tls(str(ca), check_host=False)))
        with Cluster(settings) as one, pytest.raises(ConnectionLostError, match="ApiVersions"):
            one.topics(None)


def test_what_a_client_lacks_is_named(secured: Secured, tmp_path: Path) -> None:
    encrypted, empty = tmp_path / "encrypted.key", tmp_path / "empty"
    subprocess.run(
        ["openssl", "pkey", "-in", secured.key, "-aes256", "-passout", "pass:canary", "-out", encrypted],
        check=True,
        capture_output=True,
    )
    empty.touch()
    ca, certificate = str(secured.ca), str(secured.certificate)
    login = Login("PLAIN", USER, PASSWORD)
    for tls, found, says in (
        (Tls("/no/such/file"), login, "ssl.ca.location /no/such/file: No such file"),
        (Tls(str(empty)), login, "ssl.ca.location .*empty: "),
        (Tls(ca, certificate, str(encrypted)), login, "the key is encrypted"),
        (Tls(ca, certificate, "/no/such/key"), login, "ssl.key.location .*/no/such/key: No such file"),
        (Tls(ca), Login("PLAIN", USER, password_file=str(empty)), "sasl.password.file .*empty is empty"),
        (Tls(ca), Login("PLAIN", USER, password_file="/no/such"), "sasl.password.file /no/such: No such"),
    ):
        with (
            cluster(secured.address(SASL_SSL), tls, found) as one,
            pytest.raises(AuthenticationError, match=says),
        ):
            one.topics(None)
    # A listener without TLS closes the connection, as a broker that restarts does: that may pass.
    settings = ClientSettings((secured.broker.kafka_address,), retry=0, security=Security(Tls(ca)))
    with Cluster(settings) as one, pytest.raises(ConnectionLostError, match="during the TLS handshake"):
        one.topics(None)


def test_a_mechanism_that_the_broker_does_not_offer_is_named(secured: Secured) -> None:
    login = Login("SCRAM-SHA-1", USER, PASSWORD)
    with (
        cluster(secured.address(SASL_SSL), trusting(secured), login) as one,
        pytest.raises(AuthenticationError, match=r"does not offer SCRAM-SHA-1; it offers: .*SCRAM-SHA-256"),
    ):
        one.topics(None)


def test_a_listener_without_a_login_refuses_one(secured: Secured) -> None:
    with (
        cluster(secured.broker.kafka_address, None, Login("PLAIN", USER, PASSWORD)) as one,
        pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"),
    ):
        one.topics(None)


def test_settings_travel_to_workers_and_print_no_password() -> None:
    security = Security(Tls("ca.pem"), Login("PLAIN", USER, PASSWORD))
    settings = ClientSettings((("localhost", 9092),), security=security)
    assert "canary" not in f"{settings!r} {settings}"
    assert pickle.loads(pickle.dumps(settings)) == settings
