"""Kafka's property names: what each becomes, what is refused, and that no refusal shows a secret."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from core.client.properties import client_settings, jaas_options
from core.client.settings import Address, ClientSettings
from core.errors import BrokerError, ErrorCode

SECRET = "s3cr3t=of \"the' gateway"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def settings(**properties: str) -> ClientSettings:
    return client_settings(
        {"bootstrap.servers": "b1:9092", **{n.replace("_", "."): v for n, v in properties.items()}}
    )


def of(properties: dict[str, str]) -> ClientSettings:
    return client_settings({"bootstrap.servers": "b1:9092", **properties})


def secret_of(made: ClientSettings) -> str:
    assert made.login is not None

    async def ask() -> str:
        assert made.login is not None
        return await made.login.secret()

    return asyncio.run(ask())


def test_brokers_are_addresses() -> None:
    made = client_settings({"bootstrap.servers": "b1:9092, SASL_SSL://b2:9093,[::1]:9,b1:9092"})
    assert made.bootstrap == (Address("b1", 9092), Address("b2", 9093), Address("::1", 9))
    assert made.tls is None and made.login is None
    for text in ("", "b1", "b1:0", "b1:99999", "b1:9092;b2:1"):
        with pytest.raises(ValueError, match=r"bootstrap\.servers"):
            client_settings({"bootstrap.servers": text})


def test_numbers_have_the_names_of_java_and_of_librdkafka() -> None:
    made = settings(
        request_timeout_ms="5000", metadata_max_age_ms="60000", buffer_memory="1048576", client_id="g"
    )
    assert (made.request_timeout_ms, made.metadata_max_age_ms, made.buffer_memory) == (
        5_000,
        60_000,
        1_048_576,
    )
    assert made.client_id == "g"
    assert of({"topic.metadata.refresh.interval.ms": "60000"}).metadata_max_age_ms == 60_000
    for text in ("-1", "x", "6", "١"):
        with pytest.raises(ValueError, match="must be a whole number from 1 to 5"):
            of({"max.in.flight.requests.per.connection": text})


def test_a_name_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'sasl.pasword' is not known here. Did you mean sasl.password\?"):
        of({"sasl.pasword": SECRET})
    with pytest.raises(ValueError, match=r"'foo' is not known here. Leave it out."):
        of({"foo": "1"})


def test_names_for_other_clients_are_ignored() -> None:
    names = (
        "client.dns.lookup",
        "session.timeout.ms",
        "acks",
        "schema.registry.url",
        "key.serializer",
        "group.id",
    )
    assert of(dict.fromkeys(names, "x")) == of({})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("form", ["librdkafka", "java"])
def test_a_login_has_a_user_and_a_password(mechanism: str, form: str) -> None:
    quoted = SECRET.replace('"', '\\"')
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    credentials = (
        {"sasl.username": "gateway", "sasl.password": SECRET}
        if form == "librdkafka"
        else {
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required\n"
            f'  username="gateway" password="{quoted}";'
        }
    )
    made = of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **credentials})
    assert made.login is not None and made.login.mechanism == mechanism and made.login.username == "gateway"
    assert secret_of(made) == SECRET and SECRET not in repr(made)


def test_jaas_options_are_quoted_in_three_ways() -> None:
    text = 'x.PlainLoginModule required username=\'a b\' password="c\\"d" other = e;'
    assert jaas_options(text) == {"username": "a b", "password": 'c"d', "other": "e"}
    for broken in (
        SECRET,
        f'x.PlainLoginModule required password="{SECRET}"',
        f"required password='{SECRET}';",
    ):
        with pytest.raises(ValueError, match=r"sasl\.jaas\.config must be like") as refused:
            jaas_options(broken)
        assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.username": "u", "sasl.password": SECRET}, "sasl.username is not used with security"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location is not used with security.protocol=PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "and is left out: Kafka's default, GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "not 'AWS_MSK_IAM'"),
        (LOGIN, "PLAIN needs sasl.username"),
        ({**LOGIN, "sasl.username": "u"}, "PLAIN needs sasl.password"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({**LOGIN, "sasl.username": "u", "sasl.password": SECRET + "\0"}, "no null characters"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_without_a_secret(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        of(properties)
    assert message in str(refused.value) and "s3cr3t" not in str(refused.value)


def test_a_token_comes_from_a_file_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    made = of({
        **LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"file://{file}",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=p",
    })  # fmt: skip
    assert secret_of(made) == "first"
    file.write_text("second")
    assert secret_of(made) == "second"
    assert made.login is not None
    assert made.login.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "p"))
    for content in (None, ""):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        with pytest.raises(BrokerError) as refused:
            secret_of(made)
        assert (
            refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED and str(file) in refused.value.message
        )


def test_a_token_endpoint_is_https() -> None:
    name = "sasl.oauthbearer.token.endpoint.url"
    base = {**LOGIN, "sasl.mechanism": "OAUTHBEARER", name: "https://issuer.example.org/token"}
    with pytest.raises(ValueError, match=r"needs sasl\.oauthbearer\.client\.id"):
        of(base)
    client = {"sasl.oauthbearer.client.id": "g", "sasl.oauthbearer.client.secret": SECRET}
    made = of({**base, **client})
    assert made.login is not None and made.login.username == "g"
    with pytest.raises(ValueError, match="is not https"):
        of({**base, **client, name: "http://issuer.example.org/token"})


# --- TLS ------------------------------------------------------------------------------------------------------


def test_tls_checks_the_name_of_the_host_unless_told_otherwise() -> None:
    made = of({"security.protocol": "SSL"})
    assert made.tls is not None and made.tls.check_hostname and made.tls.verify_mode is ssl.CERT_REQUIRED
    for text in ("", "none"):
        made = of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": text})
        assert made.tls is not None and not made.tls.check_hostname
        assert made.tls.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ValueError, match="must be https, or empty"):
        of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"})


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, wrong = tmp_path / "none.pem", tmp_path / "wrong.pem"
    wrong.write_text("no PEM")
    for file in (missing, wrong):
        with pytest.raises(ValueError, match=r"\.pem cannot be read"):
            of({"security.protocol": "SSL", "ssl.ca.location": str(file)})
        with pytest.raises(ValueError, match=r"\.pem cannot be used"):
            of({"security.protocol": "SSL", "ssl.certificate.location": str(file)})
    with pytest.raises(ValueError, match=r"needs ssl\.certificate\.location"):
        of({"security.protocol": "SSL", "ssl.key.location": str(wrong)})


@pytest.mark.parametrize(
    "properties",
    [{"ssl.truststore.location": "client.truststore.jks"}, {"ssl.keystore.location": "k.p12"},
     {"ssl.truststore.location": "t", "ssl.truststore.type": "JKS"}],
)  # fmt: skip
def test_key_stores_of_java_are_refused_with_a_way(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be a PEM file: Java's key stores are not read here"):
        of({"security.protocol": "SSL", **properties})
