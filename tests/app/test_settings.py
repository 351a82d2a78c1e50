"""Settings from environment and flags, and each bad one refused in one line."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from app.settings import (
    is_loopback,
    load,
    load_with_file,
    open_listeners,
    parse_listener,
    plain_fields,
    unknown_variables,
)
from core.config import Config, Endpoint, Peer
from core.errors import StartupError


def test_without_settings_everything_is_as_config_says() -> None:
    assert load({}) == Config()


def test_the_environment_sets_what_the_flags_do_not() -> None:
    environ = {
        "SLUICE_DATA_DIR": "/data",
        "SLUICE_LISTENERS": " http://127.0.0.1:1 , kafka://[::1]:2,",
        "SLUICE_ADVERTISED": "kafka://broker.example.org:9092",
        "SLUICE_ALLOWED_HOSTS": "Sluice.Example.Org.",
        "SLUICE_ALLOWED_ORIGINS": "https://App.example.org/, http://localhost:3000",
        "SLUICE_TOPIC_DEFAULTS": "retention.ms=1000; cleanup.policy=compact,delete;",
        "SLUICE_HTTP_MAX_BODY_BYTES": "1_000_000",
        "SLUICE_AUTO_CREATE_TOPICS": "No",
        "SLUICE_COMPACTION_MIN_DIRTY_RATIO": "0.25",
    }
    config = load(environ)
    assert config.data_dir == Path("/data")
    assert config.listeners == (Endpoint("http", "127.0.0.1", 1), Endpoint("kafka", "::1", 2))
    assert config.advertised == Endpoint("kafka", "broker.example.org", 9092)
    assert config.http_allowed_hosts == ("sluice.example.org",)
    assert config.http_allowed_origins == ("https://app.example.org", "http://localhost:3000")
    assert config.topic_defaults == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert config.http_max_body_bytes == 1_000_000
    assert config.auto_create_topics is False
    assert config.compaction_min_dirty_ratio == 0.25


@pytest.mark.parametrize("text", ["0", "1000", "32767"])
def test_the_key_of_the_draft_s_request_is_off_or_beyond_kafka_s_own(text: str) -> None:
    assert load({"SLUICE_PROTOCOL_VERSION_API_KEY": text}).protocol_version_api_key == int(text)


@pytest.mark.parametrize("text", ["18", "999", "32768", "-1"])
def test_another_key_for_it_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match="SLUICE_PROTOCOL_VERSION_API_KEY"):
        load({"SLUICE_PROTOCOL_VERSION_API_KEY": text})


def test_a_flag_wins_over_the_environment() -> None:
    environ = {
        "SLUICE_DATA_DIR": "/data",
        "SLUICE_LISTENERS": "http://127.0.0.1:1",
        "SLUICE_ADVERTISED": "kafka://a:1",
        "SLUICE_ALLOWED_HOSTS": "a",
        "SLUICE_ALLOWED_ORIGINS": "http://a",
    }
    config = load(
        environ,
        data_dir="/other",
        listeners=("http://127.0.0.1:3",),
        advertised="kafka://b:2",
        allowed_hosts=("b",),
        allowed_origins=("http://b",),
    )
    assert config.data_dir == Path("/other")
    assert config.listeners == (Endpoint("http", "127.0.0.1", 3),)
    assert config.advertised == Endpoint("kafka", "b", 2)
    assert (config.http_allowed_hosts, config.http_allowed_origins) == (("b",), ("http://b",))


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://127.0.0.1:8082", Endpoint("http", "127.0.0.1", 8082)),
        ("KAFKA://127.0.0.1:0", Endpoint("kafka", "127.0.0.1", 0)),
        ("kafka://[::1]:9092", Endpoint("kafka", "::1", 9092)),
        ("http://localhost:80/", None),
        ("http://localhost:80", Endpoint("http", "localhost", 80)),
    ],
)
def test_a_listener_is_scheme_host_and_port(text: str, endpoint: Endpoint | None) -> None:
    if endpoint is None:
        with pytest.raises(StartupError):
            parse_listener(text)
    else:
        assert parse_listener(text) == endpoint
        assert parse_listener(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "", "127.0.0.1:9092", "kafka://", "kafka://:9092", "kafka://host", "kafka://host:", "kafka://host:x",
        "kafka://host:65536", "kafka://host:-1", "kafka://host:1?a=b", "kafka://user@host:1", "kafka://[::1:1",
        "kafka://ho st:1", "//host:1",
    ],
)  # fmt: skip
def test_a_listener_that_makes_no_sense_is_one_line(text: str) -> None:
    with pytest.raises(StartupError) as caught:
        parse_listener(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"SLUICE_LISTENERS": "nonsense"},
        {"SLUICE_LISTENERS": "http://127.0.0.1:7,kafka://127.0.0.1:7"},
        {"SLUICE_LISTENERS": "http://0.0.0.0:8082"},
        {"SLUICE_LISTENERS": "http://192.0.2.1:8082"},
        {"SLUICE_LISTENERS": "kafka://[::]:9092"},
        {"SLUICE_LISTENERS": "kafka://no-such-host.invalid:9092"},
        {"SLUICE_ADVERTISED": "kafka://host:0"},
        {"SLUICE_ADVERTISED": "http://host:1"},
        {"SLUICE_ADVERTISED": "host"},
        {"SLUICE_INSECURE": "maybe"},
        {"SLUICE_AUTO_CREATE_TOPICS": "sometimes"},
        {"SLUICE_HTTP_MAX_BODY_BYTES": "16MB"},
        {"SLUICE_HTTP_MAX_BODY_BYTES": "0"},
        {"SLUICE_HTTP_MAX_BODY_BYTES": "-1"},
        {"SLUICE_HTTP_MAX_BODY_BYTES": "１"},
        {"SLUICE_HTTP_MAX_BODY_BYTES": "9" * 30},
        {"SLUICE_COMPACTION_MIN_DIRTY_RATIO": "half"},
        {"SLUICE_COMPACTION_MIN_DIRTY_RATIO": "1.5"},
        {"SLUICE_COMPACTION_MIN_DIRTY_RATIO": "nan"},
        {"SLUICE_TOPIC_DEFAULTS": "retention.ms"},
        {"SLUICE_TOPIC_DEFAULTS": "retention.ms=soon"},
        {"SLUICE_TOPIC_DEFAULTS": "no.such.setting=1"},
        {"SLUICE_ALLOWED_ORIGINS": "app.example.org"},
        {"SLUICE_ALLOWED_ORIGINS": "https://app.example.org/path"},
    ],
    ids=lambda environ: "-".join(f"{k}={v}" for k, v in environ.items())[:60],
)
def test_a_bad_setting_is_one_line_that_names_it(environ: dict[str, str]) -> None:
    with pytest.raises(StartupError) as caught:
        load(environ)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > 30


def test_an_open_listener_is_allowed_with_insecure() -> None:
    listeners = ("http://0.0.0.0:8082",)
    assert load({}, listeners=listeners, insecure=True).listeners[0].host == "0.0.0.0"
    assert load({"SLUICE_INSECURE": "1"}, listeners=listeners).listeners[0].host == "0.0.0.0"


def test_open_listeners_are_those_that_only_insecure_allows() -> None:
    texts = ("http://0.0.0.0:1", "kafka://0.0.0.0:2?auth=plain", "kafka://127.0.0.1:3", "text://0.0.0.0:4")
    assert [str(one) for one in open_listeners(map(parse_listener, texts))] == [texts[0], texts[3]]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("192.0.2.1", False), ("no-such-host.invalid", False)],
)  # fmt: skip
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_variable_that_means_nothing_is_pointed_out() -> None:
    environ = {
        "SLUICE_DATADIR": "x",
        "SLUICE_DATA_DIR": "x",
        "SLUICE_PORT": "tcp://10.0.0.1:8082",
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "OTHER": "x",
    }
    (warning,) = unknown_variables(environ)
    assert "SLUICE_DATADIR" in warning and "Did you mean SLUICE_DATA_DIR?" in warning


def test_every_field_of_config_can_be_set() -> None:
    set_by_hand = {
        "data_dir", "listeners", "advertised", "http_allowed_hosts", "http_allowed_origins", "topic_defaults",
        "v2_dialect", "log_format", "log_level", "zookeeper", "peers", "tls", "admin_password_file",
        "super_users", "oauth", "console_oidc", "audit_log", "peer_principal",
        "gateways", "gateway_name", "gateway_secret_file", "gateway_ca", "upstream", "webhook_allow",
    }  # fmt: skip
    assert {f.name for f in fields(Config)} == set_by_hand | set(plain_fields())


def test_super_users_are_principals_with_semicolons_between(tmp_path: Path) -> None:
    wanted = ("User:admin", "User:CN=a,O=b")
    assert load({"SLUICE_SUPER_USERS": "User:admin; User:CN=a,O=b"}).super_users == wanted
    assert load({}, super_users=wanted).super_users == wanted
    file = tmp_path / "sluice.toml"
    file.write_text('super_users = ["User:admin", "User:CN=a,O=b"]')
    assert load_with_file({}, file).super_users == wanted
    for text in ("admin", "Group:a", "User:", "User:*"):
        with pytest.raises(StartupError, match="super user"):
            load({"SLUICE_SUPER_USERS": text})


@pytest.mark.parametrize(
    "text", ["127.0.0.1:2181", "a:1,b:2", "a:1/kafka/seven", " a:1, b:2/kafka/ ", "[::1]:2181"]
)
def test_zookeeper_is_one_host_or_more_with_a_path(text: str) -> None:
    assert load({"SLUICE_ZOOKEEPER": text}).zookeeper == text.replace(" ", "").removesuffix("/")


@pytest.mark.parametrize(
    "text", ["host", "host:", ":2181", "host:0", "host:70000", "a:1,b", "/kafka", "http://a:1"]
)
def test_another_zookeeper_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match="ZooKeeper"):
        load({}, zookeeper=text)


def test_the_dialect_of_the_v2_surface_is_one_of_four() -> None:
    assert load({}).v2_dialect == "confluent"
    assert load({"SLUICE_V2_DIALECT": "Strimzi "}).v2_dialect == "strimzi"
    assert load({"SLUICE_V2_DIALECT": "strimzi"}, v2_dialect="karapace").v2_dialect == "karapace"
    with pytest.raises(StartupError, match="confluent, karapace, strimzi, redpanda, not 'other'"):
        load({"SLUICE_V2_DIALECT": "other"})


def test_a_0_7_listener_has_a_message_format() -> None:
    listener = parse_listener("kafka07://127.0.0.1:0?magic=0")
    assert (listener.option("magic"), str(listener)) == ("0", "kafka07://127.0.0.1:0?magic=0")
    assert parse_listener("kafka07://127.0.0.1:0").option("magic") == "1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka07://127.0.0.1:0?magic=2", "0 or 1"),
        ("kafka07://127.0.0.1:0?magic", "0 or 1"),
        ("kafka07://127.0.0.1:0?magic=1&magic=1", "more than once"),
        ("kafka07://127.0.0.1:0?format=1", "knows magic, tls; 'format'"),
        ("kafka://127.0.0.1:0?magic=1", "knows auth, tls, advertised; 'magic'"),
        ("http://127.0.0.1:0?a=b", "knows auth, tls; 'a'"),
        ("text://127.0.0.1:0?a=b", "knows tls; 'a'"),
        ("xyz://127.0.0.1:0?a=b", "has no options"),
        ("kafka://127.0.0.1:0?tls=", "the name of a certificate"),
        ("kafka://127.0.0.1:0?tls=a/b", "the name of a certificate"),
        ("https://127.0.0.1:0?tls&tls", "more than once"),
        ("kafka://127.0.0.1:0?advertised=host", "names no port"),
        ("kafka://127.0.0.1:0?advertised=host:0", "a real port"),
        ("kafka://127.0.0.1:0?auth=", "scram-sha-256, scram-sha-512, plain, oauthbearer, each once"),
        ("kafka://127.0.0.1:0?auth=gssapi", "each once"),
        ("kafka://127.0.0.1:0?auth=plain,plain", "each once"),
        ("http://127.0.0.1:0?auth=plain", "basic, token"),
    ],
)
def test_an_option_that_a_listener_does_not_know_is_told(text: str, said: str) -> None:
    with pytest.raises(StartupError, match=said):
        parse_listener(text)


@pytest.mark.parametrize(
    ("text", "scheme", "tls", "shown"),
    [
        ("https://127.0.0.1:1", "http", "default", "https://127.0.0.1:1"),
        ("http://127.0.0.1:1?tls", "http", "default", "https://127.0.0.1:1"),
        ("https://127.0.0.1:1?tls=web", "http", "web", "https://127.0.0.1:1?tls=web"),
        ("http://127.0.0.1:1", "http", "", "http://127.0.0.1:1"),
        ("kafka://[::1]:1?tls", "kafka", "default", "kafka://[::1]:1?tls=default"),
        ("text://127.0.0.1:1?tls=a", "text", "a", "text://127.0.0.1:1?tls=a"),
        (
            "kafka07://127.0.0.1:1?magic=0&tls",
            "kafka07",
            "default",
            "kafka07://127.0.0.1:1?magic=0&tls=default",
        ),
    ],
)
def test_a_listener_says_whether_it_has_tls(text: str, scheme: str, tls: str, shown: str) -> None:
    endpoint = parse_listener(text)
    assert (endpoint.scheme, endpoint.tls, str(endpoint)) == (scheme, tls, shown)
    assert parse_listener(shown) == endpoint
    assert endpoint.url == shown.partition("?")[0]


def test_a_listener_may_advertise_another_address() -> None:
    endpoint = parse_listener("kafka://0.0.0.0:9093?tls&advertised=[::1]:9094")
    assert endpoint.advertised == Endpoint("kafka", "::1", 9094)
    assert parse_listener("kafka://127.0.0.1:9092").advertised is None


def test_a_listener_lists_how_its_clients_log_in() -> None:
    listener = parse_listener("kafka://127.0.0.1:0?auth=plain,scram-sha-256")
    assert listener.authentication == ("plain", "scram-sha-256")
    assert parse_listener(str(listener)) == listener
    assert parse_listener("kafka://127.0.0.1:0").authentication == ()


def test_listeners_are_separated_by_commas_and_their_options_have_some() -> None:
    text = "http://127.0.0.1:1?auth=basic,token, kafka://127.0.0.1:2?auth=plain,scram-sha-512,text://127.0.0.1:3,"
    assert [str(one) for one in load({"SLUICE_LISTENERS": text}).listeners] == [
        "http://127.0.0.1:1?auth=basic,token",
        "kafka://127.0.0.1:2?auth=plain,scram-sha-512",
        "text://127.0.0.1:3",
    ]


def test_a_reachable_listener_with_authentication_needs_tls_or_a_switch() -> None:
    listener = "kafka://0.0.0.0:9092?auth=scram-sha-256"
    with pytest.raises(StartupError, match="without TLS"):
        load({"SLUICE_LISTENERS": listener})
    with pytest.raises(StartupError, match="without TLS"):
        load({"SLUICE_LISTENERS": listener, "SLUICE_INSECURE": "on"})
    for allowed in (
        load({"SLUICE_LISTENERS": f"{listener}&tls", "SLUICE_TLS": "auto"}),
        load({"SLUICE_LISTENERS": listener, "SLUICE_INSECURE_PASSWORDS": "on"}),
        load({"SLUICE_LISTENERS": listener}, insecure_passwords=True),
        load({"SLUICE_LISTENERS": listener.replace("0.0.0.0", "127.0.0.1")}),
    ):
        assert allowed.listeners[0].authentication == ("scram-sha-256",)


def test_a_switch_for_passwords_opens_no_listener_without_authentication() -> None:
    with pytest.raises(StartupError, match="need not log in"):
        load({"SLUICE_LISTENERS": "kafka://0.0.0.0:9092"}, insecure_passwords=True)


def of_cluster(*listeners: str, **members: str) -> Config:
    """The settings of a broker of two, with a certificate between brokers that has these members."""
    tables = {"peers": {"certificate": "c.pem", "key": "k.pem", **members}}
    names = {"SLUICE_LISTENERS": ",".join(listeners), "SLUICE_PEERS": "2=127.0.0.1:2"}
    return load({**names, "SLUICE_TLS": json.dumps(tables)})


def test_users_of_a_cluster_need_a_listener_of_the_brokers() -> None:
    login = "kafka://127.0.0.1:1?auth=plain"
    with pytest.raises(StartupError, match="users would be copied over open connections"):
        load({"SLUICE_LISTENERS": login, "SLUICE_PEERS": "2=127.0.0.1:2"})
    config = of_cluster(login, "peer://0.0.0.0:9?tls=peers", client_ca="ca.pem")
    assert config.peer_listener == config.listeners[1] and config.peers_authenticate


def test_a_listener_of_the_brokers_proves_both_sides() -> None:
    secure = "peer://127.0.0.1:9?tls=peers"
    with pytest.raises(StartupError, match="has to ask for theirs"):
        of_cluster(secure)
    with pytest.raises(StartupError, match="has to ask for theirs"):
        of_cluster(secure, client_ca="ca.pem", client_auth="requested")
    with pytest.raises(StartupError, match="has to ask for theirs"):
        of_cluster("peer://127.0.0.1:9", "kafka://127.0.0.1:8?tls=peers", client_ca="ca.pem")
    with pytest.raises(StartupError, match="one listener of the scheme peer"):
        of_cluster(secure, "peer://127.0.0.1:10?tls=peers", client_ca="ca.pem")
    with pytest.raises(StartupError, match="name them by --peer"):
        load({"SLUICE_LISTENERS": "peer://127.0.0.1:9"})
    with pytest.raises(StartupError, match="add --advertised"):
        of_cluster(secure, "kafka://0.0.0.0:8?auth=plain&tls=peers", client_ca="ca.pem")


def test_the_principal_of_a_broker_has_its_number() -> None:
    listeners = {"SLUICE_LISTENERS": "peer://127.0.0.1:9?tls=p", "SLUICE_PEERS": "2=127.0.0.1:2"}
    tables = json.dumps({"p": {"certificate": "c.pem", "client_ca": "ca.pem"}})
    given = {**listeners, "SLUICE_TLS": tables}
    assert load(given).peer_principal == "User:CN=broker-{id}"
    assert load({**given, "SLUICE_PEER_PRINCIPAL": "User:b{id}"}).peer_principal == "User:b{id}"
    with pytest.raises(StartupError, match="SLUICE_PEER_PRINCIPAL must be"):
        load({**given, "SLUICE_PEER_PRINCIPAL": "User:b"})


def test_peers_are_brokers_with_other_numbers() -> None:
    assert load({}).peers == ()
    config = load({"SLUICE_PEERS": "2=127.0.0.1:9093, 3=[::1]:9094"}, broker_id=1)
    assert config.peers == (Peer(2, "127.0.0.1", 9093), Peer(3, "::1", 9094))
    assert load({"SLUICE_BROKER_ID": "7"}, peers=["2=h:1"]).broker_id == 7


@pytest.mark.parametrize(
    "peers", [["1=h:1"], ["2=h:1", "2=h:2"], ["32=h:1"], ["h:1"], ["x=h:1"], ["2=h"], ["2=h:0"], ["-2=h:1"]]
)
def test_peers_that_cannot_be_are_refused(peers: list[str]) -> None:
    with pytest.raises(StartupError):
        load({}, broker_id=1, peers=peers)


def test_webhooks_are_off_by_themselves_where_other_machines_reach_the_broker() -> None:
    beyond = ("http://0.0.0.0:1?auth=token", "kafka://127.0.0.1:2")
    tls = {"insecure_passwords": True}
    assert load({}).webhooks
    assert not load({"SLUICE_WEBHOOKS": "false"}).webhooks
    assert not load({}, listeners=beyond, **tls).webhooks
    asked = load({"SLUICE_WEBHOOKS": "true"}, listeners=beyond, **tls)
    assert asked.webhooks and not asked.webhook_allow_only
    assert load({}, listeners=beyond, webhooks=True, **tls).webhooks


def test_webhooks_reach_only_the_allow_list_if_clients_need_no_login() -> None:
    found = load(
        {}, listeners=("http://0.0.0.0:1",), insecure=True, webhooks=True, webhook_allow=("10.0.0.0/8",)
    )
    assert found.webhooks and found.webhook_allow_only
    assert found.webhook_allow == ("10.0.0.0/8",)
    assert load({"SLUICE_WEBHOOK_ALLOW": "A.example, ::1"}).webhook_allow == ("a.example", "::1")
    with pytest.raises(StartupError, match="SLUICE_WEBHOOK_ALLOW"):
        load({"SLUICE_WEBHOOK_ALLOW": "http://x/"})
