"""Kafka's properties: what they mean, and what is wrong with them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from core.client.properties import NAMES, client_settings
from core.client.settings import Address, Login
from core.errors import BrokerError
from tests.tls import make_certificate

B = {"bootstrap.servers": "a:9092"}
SASL = {**B, "security.protocol": "SASL_PLAINTEXT"}


async def secret_of(login: Login | None) -> str:
    assert login is not None
    return await login.secret()


def test_addresses_and_numbers() -> None:
    made = client_settings(
        {
            "bootstrap.servers": " a:9092, [::1]:9093,a:9092",
            "client.id": "me",
            "request.timeout.ms": "5000",
            "linger.ms": "0",
        }
    )
    assert made.bootstrap == (Address("a", 9092), Address("::1", 9093))
    assert str(made.bootstrap[1]) == "[::1]:9093"
    assert (made.client_id, made.request_timeout_ms, made.linger_ms, made.tls, made.login) == (
        "me",
        5000,
        0,
        None,
        None,
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_and_a_password_in_each_form(mechanism: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('p"w\n')
    jaas = (
        r'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="p\"w";'
    )
    for given in (
        {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": 'p"w'},
        {"sasl.mechanisms": mechanism.lower(), "sasl.username": "alice", "sasl.password.file": str(file)},
        {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas},
    ):
        login = client_settings({**SASL, **given}).login
        assert login is not None and (login.mechanism, login.username) == (mechanism, "alice")
        assert await secret_of(login) == 'p"w'
        assert 'p"w' not in repr(login) and 'p"w' not in repr(client_settings({**SASL, **given}))
    file.unlink()
    with pytest.raises(BrokerError, match="cannot be read"):
        await secret_of(
            client_settings(
                {**SASL, "sasl.mechanism": mechanism, "sasl.username": "a", "sasl.password.file": str(file)}
            ).login
        )


async def test_a_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    file.write_text("abc\n")
    for given in (
        {"sasl.oauthbearer.token.file": str(file)},
        {"sasl.oauthbearer.token.endpoint.url": file.as_uri()},
    ):
        login = client_settings(
            {**SASL, "sasl.mechanism": "OAUTHBEARER", **given, "sasl.oauthbearer.extensions": "a=b,cd=e f"}
        ).login
        assert await secret_of(login) == "abc"
        assert login is not None and login.extensions == (("a", "b"), ("cd", "e f"))


def test_tls_by_the_names_of_both_clients(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    for ca, own in (
        ("ssl.ca.location", "ssl.certificate.location"),
        ("ssl.truststore.location", "ssl.keystore.location"),
    ):
        made = client_settings(
            {
                **B,
                "security.protocol": "ssl",
                ca: str(certificate.file),
                own: str(certificate.file),
                "ssl.key.location": str(certificate.key),
            }
        )
        assert made.tls is not None and made.tls.check_hostname and made.tls.verify_mode is ssl.CERT_REQUIRED
        assert len(made.tls.get_ca_certs()) == 1
    text = certificate.file.read_text()
    made = client_settings(
        {
            **B,
            "security.protocol": "SSL",
            "ssl.truststore.certificates": text,
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert made.tls is not None and not made.tls.check_hostname and made.tls.verify_mode is ssl.CERT_REQUIRED
    made = client_settings({**B, "security.protocol": "SSL", "enable.ssl.certificate.verification": "false"})
    assert made.tls is not None and made.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "a"}, "bootstrap.servers has 'a': write host:port"),
        ({"bootstrap.servers": "a:70000"}, "bootstrap.servers has 'a:70000'"),
        ({**B, "bootstrap.server": "a:1"}, "Unknown property 'bootstrap.server'. Did you mean 'bootstrap.servers'?"),
        ({**B, "key.serializer": "x"}, "Unknown property 'key.serializer'"),
        ({**B, "request.timeout.ms": "soon"}, "request.timeout.ms is 'soon': use a whole number from 100 to 600000"),
        ({**B, "max.in.flight.requests.per.connection": "6"}, "from 1 to 5"),
        ({**B, "security.protocol": "TLS"}, "security.protocol is 'TLS': use one of PLAINTEXT, SSL"),
        ({**B, "sasl.username": "a"}, "sasl.username has no effect with security.protocol=PLAINTEXT: use SASL"),
        ({**SASL, "ssl.ca.location": "/x"}, "ssl.ca.location has no effect with security.protocol=SASL_PLAINTEXT"),
        (SASL, "sasl.mechanism is missing: use one of PLAIN"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI': use one of PLAIN"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "PLAIN needs sasl.username, and either"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "user=a"}, "sasl.jaas.config cannot be read"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://issuer.example/t",
             "sasl.jaas.config": 'x.Y required clientId="a" clientSecret="b";'},
            "sasl.oauthbearer.token.endpoint.url is not https",
        ),
        ({**B, "security.protocol": "SSL", "ssl.ca.location": "/missing"}, "The authorities (ssl.ca.location)"),
        ({**B, "security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "ssl.truststore.type is 'JKS': only PEM"),
        ({**B, "security.protocol": "SSL", "ssl.key.location": "/k"}, "needs ssl.certificate.location"),
        ({**B, "security.protocol": "SSL", "ssl.certificate.location": "/k"}, "The client's certificate"),
        ({**B, "security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "same setting"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(given: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        client_settings(given)
    assert text in str(caught.value)


def test_names_are_kafkas() -> None:
    assert all(name == name.lower() and "_" not in name for name in NAMES)
