"""The settings of upstream mode: brokers, properties, and what does not fit a gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings import load, load_with_file, origins
from app.upstream_settings import parse_properties
from core.config import Config
from core.errors import StartupError

SECRET = "s3cr3t-of-the-gateway"
PROPERTIES = f"""\
# As Confluent Cloud gives it.
bootstrap.servers=pkc-1.eu.example.org:9092
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=KEY
sasl.password={SECRET}
"""


def private(file: Path, text: str = PROPERTIES) -> str:
    file.touch(mode=0o600)
    file.write_text(text)
    return str(file)


def test_without_upstream_the_process_is_a_broker() -> None:
    assert load({}).upstream is None
    assert load({}).listeners == Config().listeners


@pytest.mark.parametrize(
    ("environ", "servers"),
    [
        ({}, ("b1:9092", "b2:9093")),
        ({}, ("b1:9092, b2:9093",)),
        ({}, ("SASL_SSL://b1:9092,PLAINTEXT://b2:9093",)),
        ({"SLUICE_UPSTREAM": "b1:9092,b2:9093"}, ()),
        ({"SLUICE_UPSTREAM": "other:1"}, ("b1:9092", "b2:9093")),
    ],
)
def test_brokers_come_from_flags_and_the_environment(
    environ: Mapping[str, str], servers: tuple[str, ...]
) -> None:
    found = load(environ, upstream=servers).upstream
    assert found is not None
    assert found.servers == ("b1:9092", "b2:9093") and found.identity == "gateway" and not found.properties


def test_addresses_of_ip_version_6_have_brackets() -> None:
    found = load({"SLUICE_UPSTREAM": "[::1]:9092"}).upstream
    assert found is not None and found.servers == ("[::1]:9092",)


@pytest.mark.parametrize(
    "text", ["b1", "b1:", ":9092", "b1:0", "b1:65536", "::1:9092", "b1:9092/x", "b1;b2:1"]
)
def test_a_broker_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match=r"is not host:port, as in --upstream b1:9092,b2:9092\."):
        load({}, upstream=(text,))


def test_properties_may_name_the_brokers(tmp_path: Path) -> None:
    found = load({}, upstream_config=private(tmp_path / "client.properties")).upstream
    assert found is not None
    assert found.servers == ("pkc-1.eu.example.org:9092",)
    assert found.properties == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "KEY", "sasl.password": SECRET,
    }  # fmt: skip
    named = load({}, upstream=("b1:1",), upstream_config=str(tmp_path / "client.properties")).upstream
    assert named is not None and named.servers == ("b1:1",) and named.properties == found.properties


def test_the_file_of_settings_may_have_all_of_it(tmp_path: Path) -> None:
    properties = private(tmp_path / "client.properties")
    file = tmp_path / "sluice.toml"
    file.write_text(f'upstream = ["b1:1", "b2:2"]\nupstream_config = "{properties}"\n')
    config = load_with_file({}, file)
    assert config.upstream is not None and config.upstream.servers == ("b1:1", "b2:2")
    assert [endpoint.scheme for endpoint in config.listeners] == ["http"]
    shown = {one.name: one.value for one in origins({}, file)}
    assert shown["upstream"] == "b1:1,b2:2" and shown["upstream_config"] == properties
    assert SECRET not in str(shown)


def test_no_text_of_the_settings_shows_a_password(tmp_path: Path) -> None:
    config = load({}, upstream_config=private(tmp_path / "client.properties"))
    assert "KEY" not in repr(config) and SECRET not in repr(config) and SECRET not in str(config.upstream)


def test_a_file_with_a_password_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    private(file)
    file.chmod(0o644)
    with pytest.raises(StartupError, match="chmod 600") as refused:
        load({}, upstream_config=str(file))
    assert SECRET not in str(refused.value)
    file.write_text("bootstrap.servers=b1:1\nsecurity.protocol=SSL\n")
    assert load({}, upstream_config=str(file)).upstream is not None


def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with pytest.raises(StartupError, match="SLUICE_UPSTREAM_CONFIG: No such file"):
        load({}, upstream_config=str(file))
    private(file, f"sasl.password=\\u00{SECRET}")
    with pytest.raises(StartupError, match="line 1 has a broken") as refused:
        load({}, upstream_config=str(file))
    assert SECRET not in str(refused.value)
    file.write_bytes(b"a=\xff" + SECRET.encode())
    with pytest.raises(StartupError, match="it is not UTF-8") as refused:
        load({}, upstream_config=str(file))
    assert SECRET not in str(refused.value)
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(StartupError, match="more than 1048576 bytes"):
        load({}, upstream_config=str(file))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SLUICE_PEERS": "2=b2:1"}, "--peer exclude each other: the cluster replicates"),
        ({"SLUICE_LISTENERS": "http://127.0.0.1:1,kafka://127.0.0.1:2"}, "kafka://127.0.0.1:2 exclude each other"),
        ({"SLUICE_LISTENERS": "text://127.0.0.1:2"}, "serves the line protocol"),
        ({"SLUICE_LISTENERS": "kafka07://127.0.0.1:2"}, "byte offsets of Kafka 0.7"),
        ({"SLUICE_ZOOKEEPER": "z:2181"}, "--zookeeper exclude each other"),
        ({"SLUICE_ADVERTISED": "kafka://h:1"}, "--advertised exclude each other"),
        ({"SLUICE_TOPIC_DEFAULTS": "retention.ms=1"}, "the cluster has defaults of its own"),
        ({"SLUICE_UPSTREAM_IDENTITY": "me"}, "SLUICE_UPSTREAM_IDENTITY must be gateway or caller, not 'me'"),
    ],
)  # fmt: skip
def test_what_belongs_to_a_broker_is_refused_with_the_reason(environ: dict[str, str], message: str) -> None:
    with pytest.raises(StartupError) as refused:
        load({"SLUICE_UPSTREAM": "b1:1", **environ})
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["SLUICE_UPSTREAM_IDENTITY", "SLUICE_UPSTREAM_CONFIG"])
def test_settings_of_a_cluster_need_a_cluster(name: str, tmp_path: Path) -> None:
    value = private(tmp_path / "f", "security.protocol=SSL") if name.endswith("CONFIG") else "gateway"
    with pytest.raises(StartupError, match=f"{name} belongs to a Kafka cluster, and none is named"):
        load({name: value})


def test_the_listeners_of_a_gateway_are_those_of_http() -> None:
    config = load({"SLUICE_UPSTREAM": "b1:1", "SLUICE_TLS": "auto"})
    assert [str(endpoint) for endpoint in config.listeners] == ["https://127.0.0.1:8082"]
    named = load({"SLUICE_UPSTREAM": "b1:1"}, listeners=("http://127.0.0.1:1",))
    assert [str(endpoint) for endpoint in named.listeners] == ["http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 \r\nb:2\n c 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# x=1\n! y=2\n\n   \n", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        (r"a\=b\:\ c=x", {"a=b: c": "x"}),
        ("a=1\\\n   2\\\n# 3\nb=4", {"a": "12# 3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"a=\u00e9\t\q", {"a": "é\tq"}),
        (
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
            '  username="k" \\\n'
            '  password="p=1";',
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="k" password="p=1";'
            },
        ),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_properties_that_are_escaped_come_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" for c in text)

    expected = {
        name: value for name, value in properties.items() if all(ord(c) < 2**16 for c in name + value)
    }
    lines = [f"{escaped(name)}={escaped(value)}" for name, value in expected.items()]
    assert parse_properties("\n".join(lines)) == expected


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_properties(text)
