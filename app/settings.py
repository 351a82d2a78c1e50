"""Environment, flags and the configuration file → one core `Config`, and the source of each setting.

A flag wins over the environment, the environment over the file, the file over the default. Every number and switch
of `Config` can be set as `SLUICE_<NAME IN CAPITALS>`; the few that people set by hand have a flag as well. A setting
that is invalid stops the start with one line that says what is valid.

The file `sluice.toml` has the settings by their names in lower case: `SLUICE_DATA_DIR` is `data_dir`. Lists are TOML
arrays; `topic_defaults` is a table. The file is turned into variables, so that the same checks apply to both.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from app.gateway_settings import check_gateways, check_workers, of_gateways
from app.logs import FORMATS, LEVELS
from app.oauth_settings import parse_oauth, refuse_tokens_without_issuer
from app.oidc_settings import parse_oidc
from app.peer_settings import check_peers
from app.rest_v2.dialect import DIALECTS
from app.setting_tables import did_you_mean
from app.tls_settings import authenticates, listeners_with_tls, parse_tls
from app.upstream_settings import check_upstream, listeners_of_a_gateway, upstream_of
from app.webhook_settings import of_webhooks
from core.config import (
    ADVERTISED,
    AUTH,
    DEFAULT_CERTIFICATE,
    IDENTITIES,
    LISTENER_OPTIONS,
    MAX_BROKERS,
    TLS,
    Config,
    Endpoint,
    Peer,
    TlsSettings,
)
from core.errors import BrokerError, StartupError
from core.topic_config import parse_topic_config

PREFIX = "SLUICE_"
CONFIG_VARIABLE = "SLUICE_CONFIG"
_MAX_FILE_BYTES = 1024 * 1024
# Schemes of `--listener`: `http` is served here, the others by `core.server`, which knows its own.
HTTP_SCHEME = "http"
HTTPS_SCHEME = "https"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
# Numbers that may be 0. Every other limit of 0 would stop the broker from doing anything.
_MAY_BE_ZERO = frozenset(
    {
        "broker_id",
        "group_initial_rebalance_delay_ms",
        "file_delete_delay_ms",
        "max_waiting",
        "drain_timeout_ms",
        "failed_authentication_delay_ms",
        "max_reauth_ms",
        "protocol_version_api_key",
    }
)
# Kafka gives its own API keys out from 0 upwards; the wire has 16 bits for one.
_API_KEYS = range(1_000, 2**15)
# What Kubernetes puts into the environment for a service that is called "sluice".
_KUBERNETES = ("SLUICE_SERVICE_", "SLUICE_PORT")
# Variables that are no settings: the path of the configuration file, and what commands other than `serve` read.
_OTHERS = frozenset({CONFIG_VARIABLE, "SLUICE_TOKEN", "SLUICE_URL", "SLUICE_CA", "SLUICE_BOOTSTRAP"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as docs/reference/settings.md shows it."""

    variable: str
    flag: str
    default: str
    meaning: str


SETTINGS: tuple[Setting, ...] = (
    Setting("SLUICE_DATA_DIR", "--data-dir", "./sluice-data", "Where logs and metadata are kept."),
    Setting(
        "SLUICE_LISTENERS",
        "--listener",
        "http://127.0.0.1:8082,kafka://127.0.0.1:9092",
        "The addresses to listen on; repeat the flag, or separate by commas. Port 0 lets the system choose.",
    ),
    Setting(
        "SLUICE_TLS",
        "--tls",
        "none",
        "The certificate of `https://…` and `kafka://…?tls`: `CERTIFICATE.pem,KEY.pem`, or `auto` for a self-signed "
        "one that the broker makes. In the file also as tables `[tls.NAME]`.",
    ),
    Setting(
        "SLUICE_ADVERTISED",
        "--advertised",
        "the listener's own address",
        "The address that the broker gives to Kafka clients, as `kafka://host:port`. One listener has its own "
        "address by the option `kafka://…?advertised=host:port`.",
    ),
    Setting(
        "SLUICE_INSECURE",
        "--insecure",
        "off",
        "Allow listeners that are not loopback and have no authentication.",
    ),
    Setting(
        "SLUICE_INSECURE_PASSWORDS",
        "--insecure-passwords",
        "off",
        "Allow users to log in without TLS over listeners that are not loopback: others on the way can read along.",
    ),
    Setting(
        "SLUICE_WEBHOOK_ALLOW",
        "--webhook-allow",
        "none",
        "Networks, addresses, host names and `*.domain` that webhooks of queues may reach although they are not "
        "public, and without TLS; with commas.",
    ),
    Setting(
        "SLUICE_AUDIT_LOG",
        "",
        "stderr",
        "A file for the audit log: logins, denials and changes by administrators, one JSON object a line.",
    ),
    Setting(
        "SLUICE_ADMIN_PASSWORD_FILE",
        "",
        "none",
        "A file with the password of the user `admin`, which a start creates if there is no user yet.",
    ),
    Setting(
        "SLUICE_OAUTH",
        "",
        "none",
        "The issuer of access tokens (JWTs) for `auth=jwt` and `auth=oauthbearer`: `issuer=https://…; "
        "audience=sluice; algorithms=RS256`. In the file as the table `[oauth]`, or several as `[oauth.NAME]`.",
    ),
    Setting(
        "SLUICE_CONSOLE_OIDC",
        "",
        "none",
        "Login of the console at the provider of `SLUICE_OAUTH`: `issuer=https://…; client_id=sluice; "
        "client_secret_file=FILE; redirect_uri=https://…/console/session/callback`.",
    ),
    Setting(
        "SLUICE_ALLOWED_HOSTS",
        "--allowed-host",
        "none",
        "Host names for browsers, in addition to IP addresses, localhost and the names of the listeners.",
    ),
    Setting(
        "SLUICE_ALLOWED_ORIGINS",
        "--allowed-origin",
        "none",
        "Origins of other web pages that may read and write, such as `https://app.example.org`.",
    ),
    Setting(
        "SLUICE_SUPER_USERS",
        "--super-user",
        "none",
        "Principals that may do everything; if there is none, `User:admin` may. With it access rules (ACLs) hold for "
        "all others, as they do from the first user on. Repeat the flag, or separate by semicolons.",
    ),
    Setting(
        "SLUICE_PEERS",
        "--peer",
        "none",
        "The other brokers of the cluster as `2=host:9092`, with their Kafka ports, or with those of their listeners "
        "`peer://`; repeat the flag, or separate by commas. This broker's own number is `--broker-id`.",
    ),
    Setting(
        "SLUICE_PEER_PRINCIPAL",
        "",
        Config().peer_principal,
        "The principal of another broker's certificate, with `{id}` in place of the broker's number.",
    ),
    Setting(
        "SLUICE_GATEWAYS",
        "--gateway",
        "none",
        "All gateways over the same cluster as `a=http://10.0.0.1:8082`, this one included; repeat the flag, or "
        "separate by commas. Every gateway needs the same list.",
    ),
    Setting("SLUICE_GATEWAY_NAME", "--gateway-name", "none", "The name of this gateway in that list."),
    Setting(
        "SLUICE_GATEWAY_SECRET_FILE",
        "",
        "none",
        "A file with the secret that all gateways share: 16 bytes or more. Needed with two gateways and more.",
    ),
    Setting(
        "SLUICE_GATEWAY_CA",
        "",
        "those of the system",
        "A PEM file with the authorities of the certificates of other gateways, for `https` in `--gateway`.",
    ),
    Setting(
        "SLUICE_UPSTREAM",
        "--upstream",
        "none",
        "Brokers of an existing Kafka cluster, as `host:port`: this process is a gateway over it without a broker of "
        "its own. Repeat the flag, or separate by commas.",
    ),
    Setting(
        "SLUICE_UPSTREAM_CONFIG",
        "--upstream-config",
        "none",
        "A properties file with the settings of Kafka's clients for that cluster: `security.protocol`, "
        "`sasl.mechanism`, `sasl.username`, … A file with a password must be for its owner alone.",
    ),
    Setting(
        "SLUICE_UPSTREAM_IDENTITY",
        "--upstream-identity",
        IDENTITIES[0],
        "As which principal the gateway calls the cluster: `gateway` is its own, `caller` that of each client, by "
        "the credentials of its request.",
    ),
    Setting(
        "SLUICE_V2_DIALECT",
        "--v2-dialect",
        "confluent",
        "The REST proxy that v2 clients expect: `confluent`, `karapace`, `strimzi` or `redpanda`.",
    ),
    Setting(
        "SLUICE_ZOOKEEPER",
        "--zookeeper",
        "none",
        "The ZooKeeper where clients of Kafka 0.7 look for brokers, as `host:port`; several with commas.",
    ),
    Setting(
        "SLUICE_LOG_FORMAT", "--log-format", "console", "How logs are written to stderr: `console` or `json`."
    ),
    Setting(
        "SLUICE_LOG_LEVEL", "--log-level", "info", "What is logged: `debug`, `info`, `warning` or `error`."
    ),
    Setting(
        "SLUICE_TOPIC_DEFAULTS",
        "",
        "none",
        "Topic settings for topics that do not set their own: `retention.ms=3600000; compression.type=zstd`.",
    ),
)


def load(
    environ: Mapping[str, str],
    *,
    data_dir: str | None = None,
    listeners: Sequence[str] = (),
    tls: str | None = None,
    advertised: str | None = None,
    insecure: bool = False,
    insecure_passwords: bool = False,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    super_users: Sequence[str] = (),
    broker_id: int | None = None,
    peers: Sequence[str] = (),
    gateways: Sequence[str] = (),
    gateway_name: str | None = None,
    workers: int | None = None,
    upstream: Sequence[str] = (),
    upstream_config: str | None = None,
    upstream_identity: str | None = None,
    v2_dialect: str | None = None,
    zookeeper: str | None = None,
    log_format: str | None = None,
    log_level: str | None = None,
    access_log: bool = False,
    webhooks: bool = False,
    webhook_allow: Sequence[str] = (),
) -> Config:
    """Return the settings of this process from the environment and the flags.

    Raises StartupError with one line that names the setting and its valid values.
    """
    values: dict[str, object] = dict(_numbers_and_switches(environ))
    where = data_dir if data_dir is not None else environ.get("SLUICE_DATA_DIR", "")
    values |= {"data_dir": Path(where).expanduser()} if where else {}
    certificates = parse_tls(tls if tls is not None else environ.get("SLUICE_TLS", ""))
    cluster = upstream_of(environ, upstream, upstream_config, upstream_identity)
    served = _listeners(environ, listeners, certificates, gateway=cluster is not None)
    values |= {"upstream": cluster, "tls": certificates, "listeners": served}
    values |= _of_issuers(environ)
    address = advertised if advertised is not None else environ.get("SLUICE_ADVERTISED", "")
    values |= {"advertised": parse_advertised(address)} if address else {}
    values |= _of_browsers(environ, allowed_hosts, allowed_origins)
    values["super_users"] = parse_super_users(super_users, environ.get("SLUICE_SUPER_USERS", ""))
    values |= {} if broker_id is None else {"broker_id": broker_id}
    others = peers or split_list(environ.get("SLUICE_PEERS", ""))
    if others:
        values |= _of_peers(environ, others, int(str(values.get("broker_id", Config().broker_id))))
    values |= {} if workers is None else {"workers": workers}
    values |= of_gateways(environ, gateways, gateway_name, split_list(environ.get("SLUICE_GATEWAYS", "")))
    values |= _of_other_clients(environ, v2_dialect, zookeeper)
    values |= _of_logs(environ, log_format, log_level)
    values |= {"access_log": True} if access_log else {}
    values["topic_defaults"] = parse_topic_defaults(environ.get("SLUICE_TOPIC_DEFAULTS", ""))
    values |= _files(environ)
    values |= _of_webhooks(environ, served, certificates, webhooks, webhook_allow)
    config = Config(**values)  # type: ignore[arg-type]
    _refuse_unsafe(config, environ, insecure=insecure, insecure_passwords=insecure_passwords)
    return config


def _listeners(
    environ: Mapping[str, str], given: Sequence[str], certificates: tuple[TlsSettings, ...], *, gateway: bool
) -> tuple[Endpoint, ...]:
    texts = given or split_listeners(environ.get("SLUICE_LISTENERS", ""))
    named = _distinct([parse_listener(text) for text in texts])
    served = listeners_with_tls(named, certificates)
    return listeners_of_a_gateway(served, bool(named)) if gateway else served


def _of_webhooks(
    environ: Mapping[str, str],
    served: tuple[Endpoint, ...],
    certificates: tuple[TlsSettings, ...],
    wanted: bool,
    allowed: Sequence[str],
) -> dict[str, object]:
    loopback = all(is_loopback(one.host) for one in served)
    on = True if wanted else None if "SLUICE_WEBHOOKS" in environ else loopback
    return of_webhooks(environ, allowed, on=on, without_login=bool(open_listeners(served, certificates)))


def _of_peers(environ: Mapping[str, str], others: Sequence[str], broker_id: int) -> dict[str, object]:
    principal = environ.get("SLUICE_PEER_PRINCIPAL", "").strip() or Config().peer_principal
    return {"peers": parse_peers(others, broker_id), "peer_principal": principal}


def _of_other_clients(
    environ: Mapping[str, str], v2_dialect: str | None, zookeeper: str | None
) -> dict[str, object]:
    values: dict[str, object] = {}
    dialect = v2_dialect if v2_dialect is not None else environ.get("SLUICE_V2_DIALECT", "")
    if dialect:
        values["v2_dialect"] = parse_dialect(dialect)
    hosts_of_zookeeper = zookeeper if zookeeper is not None else environ.get("SLUICE_ZOOKEEPER", "")
    if hosts_of_zookeeper:
        values["zookeeper"] = parse_zookeeper(hosts_of_zookeeper)
    return values


def _of_logs(environ: Mapping[str, str], log_format: str | None, log_level: str | None) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, given, choices in (("log_format", log_format, FORMATS), ("log_level", log_level, LEVELS)):
        word = given if given is not None else environ.get(variable_of(name), "")
        if word:
            values[name] = parse_choice(variable_of(name), word, choices)
    return values


def _of_issuers(environ: Mapping[str, str]) -> dict[str, object]:
    issuers = parse_oauth(environ.get("SLUICE_OAUTH", ""))
    return {"oauth": issuers, "console_oidc": parse_oidc(environ.get("SLUICE_CONSOLE_OIDC", ""), issuers)}


def _files(environ: Mapping[str, str]) -> dict[str, object]:
    names = ("admin_password_file", "audit_log")
    return {name: Path(file).expanduser() for name in names if (file := environ.get(variable_of(name), ""))}


def _of_browsers(
    environ: Mapping[str, str], allowed_hosts: Sequence[str], allowed_origins: Sequence[str]
) -> dict[str, object]:
    hosts = allowed_hosts or split_list(environ.get("SLUICE_ALLOWED_HOSTS", ""))
    origins = allowed_origins or split_list(environ.get("SLUICE_ALLOWED_ORIGINS", ""))
    return {
        "http_allowed_hosts": tuple(host.lower().rstrip(".") for host in hosts),
        "http_allowed_origins": tuple(parse_origin(origin) for origin in origins),
    }


def _refuse_unsafe(
    config: Config, environ: Mapping[str, str], *, insecure: bool, insecure_passwords: bool
) -> None:
    if not (insecure or _switch_of(environ, "SLUICE_INSECURE")):
        refuse_open_listeners(config.listeners, config.tls)
    if not (insecure_passwords or _switch_of(environ, "SLUICE_INSECURE_PASSWORDS")):
        refuse_clear_passwords(config.listeners)
    refuse_tokens_without_issuer(config.listeners, config)
    check_peers(config)
    check_gateways(config)
    check_workers(config)
    check_upstream(config)


def _switch_of(environ: Mapping[str, str], variable: str) -> bool:
    return _parse_switch(variable, environ.get(variable, ""))


def split_listeners(text: str) -> list[str]:
    """The listeners of a comma-separated list; a comma within the options of one does not end it."""
    return [part.strip() for part in re.split(r",(?=\s*(?:[a-z0-9]+://|$))", text.strip()) if part.strip()]


def split_list(text: str, separator: str = ",") -> list[str]:
    """The parts of a list, without blanks and empty parts."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return warnings about unknown `SLUICE_…` variables, each with the nearest known one.

    They are no errors: Kubernetes sets such variables by itself for a service with the name "sluice".
    """
    known = {s.variable for s in SETTINGS} | {variable_of(name) for name in plain_fields()} | _OTHERS
    warnings = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not name.startswith(_KUBERNETES):
            warnings.append(f"{name} is not a setting of Sluice and is ignored.{did_you_mean(name, known)}")
    return warnings


def variable_of(field_name: str) -> str:
    """The environment variable of a field of `Config`."""
    return PREFIX + field_name.upper()


def plain_fields() -> dict[str, int | float | bool]:
    """Return the numbers and switches of `Config` with their defaults. Each has a variable by rule."""
    return {f.name: f.default for f in fields(Config) if isinstance(f.default, (int, float, bool))}


def _numbers_and_switches(environ: Mapping[str, str]) -> Iterable[tuple[str, int | float | bool]]:
    for name, default in plain_fields().items():
        variable = variable_of(name)
        text = environ.get(variable, "").strip()
        if not text:
            continue
        if isinstance(default, bool):
            yield name, _parse_switch(variable, text)
            continue
        if isinstance(default, float):
            yield name, _parse_share(variable, text)
            continue
        low = 0 if name in _MAY_BE_ZERO else 1
        digits = text.replace("_", "")
        if not (digits.isascii() and digits.isdigit() and low <= int(digits) < 2**63):
            raise StartupError(f"{variable} must be a whole number from {low}, not {text!r}.")
        if name == "protocol_version_api_key" and int(digits) and int(digits) not in _API_KEYS:
            raise StartupError(
                f"{variable} must be 0, or from {_API_KEYS[0]} to {_API_KEYS[-1]}, not {text!r}."
            )
        yield name, int(digits)


def _parse_share(variable: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise StartupError(f"{variable} must be a number from 0 to 1, not {text!r}.")
    return share


def _parse_switch(variable: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise StartupError(f"{variable} must be true or false, not {text!r}.")


def parse_listener(text: str) -> Endpoint:
    """A listener from `scheme://host:port[?option=value]`; IPv6 in brackets, port 0 allowed. Raises StartupError.

    `https` is `http` with the option `tls`.
    """
    address, _, query = text.partition("?")
    endpoint = _parse_endpoint(address, "listener", lowest_port=0)
    if endpoint.scheme == HTTPS_SCHEME:
        options = dict(_parse_options(HTTP_SCHEME, query))
        return replace(
            endpoint, scheme=HTTP_SCHEME, options=tuple({TLS: DEFAULT_CERTIFICATE, **options}.items())
        )
    return replace(endpoint, options=_parse_options(endpoint.scheme, query))


def _parse_options(scheme: str, query: str) -> tuple[tuple[str, str], ...]:
    known = LISTENER_OPTIONS.get(scheme, {})
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, separator, value = part.partition("=")
        if name not in known:
            may = f"knows {', '.join(known)}" if known else "has no options"
            raise StartupError(f"A {scheme} listener {may}; {name!r} is not one of them.")
        if name == AUTH:
            _check_authentication(value, known[name])
        elif name == TLS:
            value = value if separator else DEFAULT_CERTIFICATE
            if _NAME.fullmatch(value) is None:
                raise StartupError(
                    f"The option {name} of a listener is the name of a certificate, not {value!r}."
                )
        elif name == ADVERTISED:
            value = _parse_endpoint(f"{scheme}://{value}", "advertised address", lowest_port=1).address
        elif value not in known[name]:
            raise StartupError(
                f"The option {name} of a listener is {' or '.join(sorted(known[name]))}; not {value!r}."
            )
        if name in options:
            raise StartupError(f"The option {name} of a listener is given more than once.")
        options[name] = value
    return tuple(options.items())


def _check_authentication(value: str, known: Sequence[str]) -> None:
    words = value.split(",")
    if not value or len(set(words)) < len(words) or not set(words) <= set(known) - {""}:
        raise StartupError(
            f"The option {AUTH} of a listener lists some of {', '.join(filter(None, known))}, each once; "
            f"not {value!r}."
        )


def parse_advertised(text: str) -> Endpoint:
    """The advertised address from `kafka://host:port`. Raises StartupError."""
    endpoint = _parse_endpoint(text, "advertised address", lowest_port=1)
    if endpoint.scheme == HTTP_SCHEME:
        raise StartupError(f"The advertised address must be kafka://host:port, not {text!r}.")
    return endpoint


def _parse_endpoint(text: str, what: str, *, lowest_port: int) -> Endpoint:
    wanted = "scheme://host:port, for example kafka://127.0.0.1:9092"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise StartupError(f"The {what} {text!r} is not {wanted}.") from None
    host = parts.hostname or ""
    if not parts.scheme or not host or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise StartupError(f"The {what} {text!r} is not {wanted}.")
    if port is None:
        raise StartupError(f"The {what} {text!r} names no port.")
    if port < lowest_port:
        raise StartupError(f"The {what} {text!r} must name a real port, not 0.")
    if any(ord(c) <= 32 or ord(c) == 127 for c in host):
        raise StartupError(f"The {what} {text!r} has an illegal host name.")
    return Endpoint(parts.scheme, host, port)


def _distinct(endpoints: list[Endpoint]) -> tuple[Endpoint, ...]:
    for index, one in enumerate(endpoints):
        for other in endpoints[:index]:
            if one.port and (one.host, one.port) == (other.host, other.port):
                raise StartupError(f"Two listeners want the same address: {other} and {one}.")
    return tuple(endpoints)


def parse_peers(texts: Iterable[str], broker_id: int) -> tuple[Peer, ...]:
    """The other brokers from `id=host:port`, the ids being different and below 32. Raises StartupError."""
    found: list[Peer] = []
    for text in texts:
        number, separator, where = text.partition("=")
        if not separator or not (number.isascii() and number.isdigit()):
            raise StartupError(f"The peer {text!r} is not like 2=127.0.0.1:9093.")
        endpoint = _parse_endpoint(f"kafka://{where}", "peer", lowest_port=1)
        found.append(Peer(int(number), endpoint.host, endpoint.port))
    ids = [broker_id, *(peer.broker_id for peer in found)]
    if len(set(ids)) < len(ids) or max(ids) >= MAX_BROKERS:
        raise StartupError(
            f"The brokers of a cluster have different ids from 0 to {MAX_BROKERS - 1}; these are "
            f"{', '.join(map(str, ids))} (--broker-id is this one's own)."
        )
    return tuple(found)


def parse_super_users(given: Iterable[str], text: str) -> tuple[str, ...]:
    """Principals like `User:name`, those given or those of a text with semicolons. Raises StartupError."""
    principals = tuple(given) or tuple(split_list(text, ";"))
    for principal in principals:
        kind, _, name = principal.partition(":")
        if kind != "User" or name in ("", "*"):
            raise StartupError(f"The super user {principal!r} is not like User:admin.")
    return principals


def parse_origin(text: str) -> str:
    """An origin as browsers write it, `scheme://host[:port]`, in lower case. Raises StartupError."""
    parts = urlsplit(text.strip().lower())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise StartupError(f"The allowed origin {text!r} is not like https://app.example.org.")
    return f"{parts.scheme}://{parts.netloc}"


def parse_dialect(text: str) -> str:
    """The name of a dialect of the REST Proxy v2 surface. Raises StartupError."""
    name = text.strip().lower()
    if name not in DIALECTS:
        raise StartupError(f"SLUICE_V2_DIALECT must be one of {', '.join(DIALECTS)}, not {text!r}.")
    return name


def parse_zookeeper(text: str) -> str:
    """Return the checked address of ZooKeeper, `host:port[,host:port][/path]`. Raises StartupError."""
    hosts, slash, path = text.strip().partition("/")
    parts = split_list(hosts)
    for part in parts or [""]:
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise StartupError(f"The ZooKeeper {text!r} is not host:port, for example 127.0.0.1:2181.")
    return ",".join(parts) + slash + path.strip("/")


def parse_choice(variable: str, text: str, choices: Sequence[str]) -> str:
    """One of a few words, in lower case. Raises StartupError."""
    word = text.strip().lower()
    if word not in choices:
        raise StartupError(f"{variable} must be one of {', '.join(choices)}, not {text!r}.")
    return word


def parse_topic_defaults(text: str) -> dict[str, str]:
    """Topic settings from `name=value; name=value`, checked against the table of topic settings."""
    values = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, separator, value = part.partition("=")
        if not separator:
            raise StartupError(f"SLUICE_TOPIC_DEFAULTS must be like retention.ms=3600000, not {part!r}.")
        values[name.strip()] = value.strip()
    try:
        parse_topic_config(values)
    except BrokerError as error:
        raise StartupError(f"SLUICE_TOPIC_DEFAULTS: {error.message}") from None
    return values


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`; a name counts by all its addresses."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = {str(info[4][0]).partition("%")[0] for info in found}
    return bool(addresses) and all(ipaddress.ip_address(a).is_loopback for a in addresses)


def open_listeners(listeners: Iterable[Endpoint], tls: tuple[TlsSettings, ...] = ()) -> list[Endpoint]:
    """Return the listeners that other machines can reach, and whose clients need neither log in nor a certificate."""
    return [
        endpoint
        for endpoint in listeners
        if not endpoint.authentication and not authenticates(endpoint, tls) and not is_loopback(endpoint.host)
    ]


def refuse_open_listeners(listeners: Iterable[Endpoint], tls: tuple[TlsSettings, ...] = ()) -> None:
    """Raise StartupError for a listener that other machines can reach and that has no authentication."""
    for endpoint in open_listeners(listeners, tls):
        ways = [word for word in LISTENER_OPTIONS.get(endpoint.scheme, {}).get(AUTH, ()) if word]
        add = f"add ?{AUTH}={','.join(ways)} to it, " if ways else ""
        raise StartupError(
            f"The listener {endpoint} can be reached from other machines, and its clients need not log in. "
            f"Listen on 127.0.0.1, {add}ask for certificates (client_ca), or allow it with --insecure."
        )


def refuse_clear_passwords(listeners: Iterable[Endpoint]) -> None:
    """Raise StartupError for a listener that other machines can reach, on which users log in without TLS."""
    for endpoint in listeners:
        if endpoint.authentication and not endpoint.tls and not is_loopback(endpoint.host):
            raise StartupError(
                f"The listener {endpoint} can be reached from other machines, and users log in to it without TLS: "
                "others on the way can read along. Listen on 127.0.0.1, add TLS (--tls), or allow it with "
                "--insecure-passwords."
            )


# --- the configuration file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting as `sluice config show` prints it."""

    name: str
    value: str
    source: str


def read_file(path: Path) -> dict[str, str]:
    """Return the settings of a file as variables of the environment.

    Raises StartupError that names the file, and the line or the setting that is wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartupError(f"Cannot read the configuration file {path}: {error.strerror}.") from None
    if len(data) > _MAX_FILE_BYTES:
        raise StartupError(f"The configuration file {path} is larger than {_MAX_FILE_BYTES} bytes.")
    try:
        values = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"The configuration file {path} is not TOML: {error}.") from None
    known = _known()
    for name in values:
        if name not in known:
            raise StartupError(f"{path}: there is no setting {name!r}.{did_you_mean(name, known)}")
    return {known[name]: _text(path, name, value) for name, value in values.items()}


def load_with_file(environ: Mapping[str, str], path: Path | None, **flags: object) -> Config:
    """Return the settings from flags, environment and file; `path` wins over SLUICE_CONFIG.

    Raises StartupError; what comes from the file is named as the file names it.
    """
    path = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    if path is None:
        return load(environ, **flags)  # type: ignore[arg-type]
    from_file = read_file(path)
    try:
        return load({**from_file, **environ}, **flags)  # type: ignore[arg-type]
    except StartupError as error:
        message = str(error)
        for variable in from_file.keys() - environ.keys():
            message = message.replace(variable, f"{path}: {variable.removeprefix(PREFIX).lower()}")
        raise StartupError(message) from None


def origins(environ: Mapping[str, str], path: Path | None) -> list[Origin]:
    """Return every setting with its value and its source: the environment, the file, or the default.

    Raises StartupError for settings that a start would refuse.
    """
    path = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    load_with_file(environ, path)
    from_file = read_file(path) if path else {}
    defaults = {setting.variable: setting.default for setting in SETTINGS}
    defaults |= {variable_of(name): _shown(value) for name, value in plain_fields().items()}
    found = []
    for name, variable in sorted(_known().items()):
        if environ.get(variable):
            found.append(Origin(name, environ[variable], f"environment {variable}"))
        elif variable in from_file:
            found.append(Origin(name, from_file[variable], str(path)))
        else:
            found.append(Origin(name, defaults[variable], "default"))
    return found


def _known() -> dict[str, str]:
    """Name in a file → variable, of every setting."""
    variables = [setting.variable for setting in SETTINGS] + [variable_of(name) for name in plain_fields()]
    return {variable.removeprefix(PREFIX).lower(): variable for variable in variables}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(path: Path, name: str, value: object) -> str:
    """A value of the file as the environment would have it."""
    if isinstance(value, str | bool | int | float):
        return _shown(value)
    if name == "super_users" and isinstance(value, list):
        # A name may have a comma in it: that of a certificate has several.
        return ";".join(map(str, value))
    # A listener may have commas in its options.
    commas = name == "listeners"
    if isinstance(value, list) and all(isinstance(one, str) and (commas or "," not in one) for one in value):
        return ",".join(value)
    if name in ("tls", "oauth") and isinstance(value, dict):
        return json.dumps(value, default=str)
    if name == "topic_defaults" and isinstance(value, dict):
        return "; ".join(f"{key}={_shown(one)}" for key, one in _flat(value).items())
    raise StartupError(f"{path}: {name} must be a string, a number, true, false, or a list of strings.")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """TOML reads `retention.ms = 1` as a table within a table; topic settings have dots in their names."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat[prefix + key] = ",".join(map(str, value))
        else:
            flat[prefix + key] = value
    return flat
