"""Kafka's property names to `ClientSettings`.

The names are those of the Java client, and of librdkafka where it has others. A name that is not known is refused, so
that a typing error does no harm; names that files for other clients have, and that mean nothing here, are ignored. No
message has a value that may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from core.client.oauth import client_credentials, token_of_file
from core.client.settings import Address, ClientSettings, Login, Mechanism, Secret
from core.client.tls import TLS_NAMES, context_of

_PROTOCOLS = {
    "PLAINTEXT": (False, False), "SSL": (True, False), "SASL_PLAINTEXT": (False, True), "SASL_SSL": (True, True),
}  # fmt: skip
# Whole numbers: the property, the setting, the least and the greatest value.
_NUMBERS: dict[str, tuple[str, int, int]] = {
    "request.timeout.ms": ("request_timeout_ms", 1_000, 600_000),
    "socket.timeout.ms": ("request_timeout_ms", 1_000, 600_000),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", 100, 600_000),
    "metadata.max.age.ms": ("metadata_max_age_ms", 1_000, 3_600_000),
    "topic.metadata.refresh.interval.ms": ("metadata_max_age_ms", 1_000, 3_600_000),
    "retry.backoff.ms": ("retry_backoff_ms", 1, 60_000),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", 1, 60_000),
    "connections.max.idle.ms": ("connections_max_idle_ms", 10_000, 86_400_000),
    "delivery.timeout.ms": ("delivery_timeout_ms", 1_000, 600_000),
    "max.in.flight.requests.per.connection": ("max_in_flight", 1, 5),
    "linger.ms": ("linger_ms", 0, 10_000),
    "batch.size": ("max_batch_bytes", 1_024, 64 * 1024 * 1024),
    "max.request.size": ("max_request_bytes", 1_024, 100 * 1024 * 1024),
    "buffer.memory": ("buffer_memory", 1024 * 1024, 2**40),
    "fetch.max.wait.ms": ("fetch_wait_ms", 1, 60_000),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", 1_024, 2**30),
    "fetch.max.bytes": ("fetch_max_bytes", 1_024, 2**30),
}
_LOGIN_NAMES = (
    "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "sasl.oauthbearer.method",
)  # fmt: skip
_KNOWN = frozenset(
    {"bootstrap.servers", "client.id", "security.protocol", *_LOGIN_NAMES, *TLS_NAMES, *_NUMBERS}
)
# Of the files that providers hand out for their own clients.
_IGNORED = re.compile(
    r"(key|value)\.(de)?serializer|acks|enable\.idempotence|retries|compression\.type|group\.id|auto\.offset\.reset"
    r"|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\..*|enable\.auto\.commit|client\.dns\.lookup"
    r"|schema\.registry\..*|basic\.auth\..*|sasl\.login\.callback\.handler\.class|sasl\.client\.callback\.handler\.class"
    r"|broker\.address\.family|log\.connection\.close|statistics\.interval\.ms"
)
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:,\[\]]+)):([0-9]{1,5})")
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.S)
_MECHANISMS: tuple[str, ...] = get_args(Mechanism)


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings that a file of Kafka properties describes. Raises ValueError for what is wrong in it."""
    for name in properties:
        if name not in _KNOWN and _IGNORED.fullmatch(name) is None:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f" Did you mean {near[0]}?" if near else " Leave it out."
            raise ValueError(f"The property {name!r} is not known here.{hint}")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ValueError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}, not {_shown(protocol)}.")
    secure, with_login = _PROTOCOLS[protocol]
    _refuse_unused(properties, secure=secure, with_login=with_login)
    found: dict[str, Any] = {}
    for name, (setting, low, high) in _NUMBERS.items():
        if name in properties:
            found[setting] = _number(name, properties[name], low, high)
    if client_id := properties.get("client.id"):
        found["client_id"] = client_id
    return ClientSettings(
        bootstrap=_addresses(properties.get("bootstrap.servers", "")),
        tls=context_of(properties) if secure else None,
        login=_login(properties) if with_login else None,
        **found,
    )


def _refuse_unused(properties: Mapping[str, str], *, secure: bool, with_login: bool) -> None:
    """Refuse credentials that would not be used: they are there because they are needed."""
    for names, used, needed in (
        (_LOGIN_NAMES, with_login, "SASL_SSL"),
        (TLS_NAMES, secure, "SASL_SSL or SSL"),
    ):
        for name in names:
            if properties.get(name) and not used:
                raise ValueError(
                    f"{name} is not used with security.protocol={properties.get('security.protocol', 'PLAINTEXT')}: "
                    f"set it to {needed}, or leave {name} out."
                )


def _shown(text: str) -> str:
    return repr(text[:60])


def _number(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {_shown(text)}.")
    return int(text)


def _addresses(text: str) -> tuple[Address, ...]:
    found = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = _ADDRESS.fullmatch(part)
        if match is None or not 0 < int(match[3]) < 2**16:
            raise ValueError(f"bootstrap.servers must be host:port with commas between, not {_shown(part)}.")
        found.append(Address(match[1] or match[2], int(match[3])))
    if not found:
        raise ValueError("bootstrap.servers names no broker.")
    return tuple(dict.fromkeys(found))


# --- logins ---------------------------------------------------------------------------------------------------


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a `sasl.jaas.config` of one login module. Raises ValueError, without a value."""
    module, _, rest = text.strip().partition(" ")
    if not module.endswith("LoginModule") or not rest.rstrip().endswith(";"):
        raise ValueError(
            "sasl.jaas.config must be like 'org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="…" password="…";\'.'
        )
    found = {}
    for match in _OPTION.finditer(rest):
        value = next(one for one in match.groups()[1:] if one is not None)
        found[match[1]] = re.sub(r"\\(.)", r"\1", value)
    return found


def _login(properties: Mapping[str, str]) -> Login:
    name = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper()
    if name not in _MECHANISMS:
        given = (
            f"not {_shown(name)}." if name else "and is left out: Kafka's default, GSSAPI, is not offered."
        )
        raise ValueError(f"sasl.mechanism must be one of {', '.join(_MECHANISMS)}, {given}")
    options = jaas_options(properties["sasl.jaas.config"]) if properties.get("sasl.jaas.config") else {}
    mechanism = cast("Mechanism", name)
    if mechanism == "OAUTHBEARER":
        return _oauth(properties, options)
    username = properties.get("sasl.username") or options.get("username", "")
    password = properties.get("sasl.password") or options.get("password", "")
    for missing, given in (("sasl.username", username), ("sasl.password", password)):
        if not given:
            raise ValueError(f"{mechanism} needs {missing}, or sasl.jaas.config with both.")
    if "\0" in username + password:
        raise ValueError("sasl.username and sasl.password have no null characters.")
    return Login(mechanism, username, _constant(password))


def _constant(secret: str) -> Secret:
    async def give() -> str:
        return secret

    return give


def _oauth(properties: Mapping[str, str], options: Mapping[str, str]) -> Login:
    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    client_id = properties.get("sasl.oauthbearer.client.id") or options.get("clientId", "")
    if not url:
        raise ValueError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: the https:// address that gives tokens, or a "
            "file:// with one."
        )
    extensions = _extensions(properties.get("sasl.oauthbearer.extensions", ""), options)
    if url.startswith("file://"):
        return Login("OAUTHBEARER", client_id, token_of_file(url.removeprefix("file://")), extensions)
    secret = properties.get("sasl.oauthbearer.client.secret") or options.get("clientSecret", "")
    scope = properties.get("sasl.oauthbearer.scope") or options.get("scope", "")
    for missing, given in (("client.id", client_id), ("client.secret", secret)):
        if not given:
            raise ValueError(f"OAUTHBEARER with a token endpoint needs sasl.oauthbearer.{missing}.")
    return Login("OAUTHBEARER", client_id, client_credentials(url, client_id, secret, scope), extensions)


def _extensions(text: str, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the extensions of RFC 7628: `name=value,name=value`, or `extension_name` of the JAAS options."""
    found = [(name[10:], value) for name, value in options.items() if name.startswith("extension_")]
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator:
            raise ValueError(
                "sasl.oauthbearer.extensions must be like logicalCluster=lkc-1,identityPoolId=p."
            )
        found.append((name, value))
    for name, value in found:
        if (
            name == "auth"
            or not re.fullmatch(r"[A-Za-z]+", name)
            or not re.fullmatch(r"[\x21-\x7e \t\r\n]*", value)
        ):
            raise ValueError("The names of extensions of OAUTHBEARER have letters alone, and none is 'auth'.")
    return tuple(found)
