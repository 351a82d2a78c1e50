"""Kafka's property names to `ClientSettings`, as librdkafka and the Java client name them."""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from core.client.settings import Address, ClientSettings, Login, Mechanism
from core.client.tokens import ClientCredentials, text_of, text_of_file
from core.security.jwks import url_problem

Result = TypeVar("Result")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Property → (field of ClientSettings, least, most).
_NUMBERS = {
    "request.timeout.ms": ("request_timeout_ms", 100, 600_000),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", 100, 600_000),
    "metadata.max.age.ms": ("metadata_max_age_ms", 100, 3_600_000),
    "retry.backoff.ms": ("retry_backoff_ms", 1, 60_000),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", 1, 60_000),
    "connections.max.idle.ms": ("connections_max_idle_ms", 1_000, 86_400_000),
    "delivery.timeout.ms": ("delivery_timeout_ms", 100, 600_000),
    "max.in.flight.requests.per.connection": ("max_in_flight", 1, 5),
    "linger.ms": ("linger_ms", 0, 1_000),
    "batch.size": ("max_batch_bytes", 1, 2**30),
    "max.request.size": ("max_request_bytes", 1, 2**30),
    "buffer.memory": ("buffer_memory", 1, 2**40),
    "fetch.max.wait.ms": ("fetch_wait_ms", 1, 60_000),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", 1, 2**30),
    "fetch.max.bytes": ("fetch_max_bytes", 1, 2**30),
}
_TEXTS = {
    "bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username",
    "sasl.password", "sasl.password.file", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.token.file", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "ssl.ca.location",
    "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.keystore.location",
    "ssl.keystore.type", "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification",
}  # fmt: skip
NAMES = frozenset(_TEXTS | set(_NUMBERS))
"""The properties that are known."""

_JAAS_OPTION = re.compile(r'([A-Za-z_][\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>[0-9]{1,5})")


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings that Kafka properties describe. Files for TLS are read now.

    Raises ValueError that says which property is wrong, with which value, and what is right.
    """
    for name in properties:
        if name not in NAMES:
            raise ValueError(f"Unknown property {name!r}. {_hint(name)}")
    found = {name: value.strip() for name, value in properties.items()}
    protocol = found.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol is {protocol!r}: use one of {', '.join(PROTOCOLS)}.")
    numbers = {
        field: _number(found, name, *bounds) for name, (field, *bounds) in _NUMBERS.items() if name in found
    }
    _refuse_without_effect(found, protocol)
    return ClientSettings(
        bootstrap=addresses(found.get("bootstrap.servers", "")),
        client_id=found.get("client.id") or "sluice",
        tls=_tls(found) if protocol.endswith("SSL") else None,
        login=_login(found) if protocol.startswith("SASL") else None,
        **numbers,
    )


def addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses of `host:port,host:port`. Raises ValueError."""
    made = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        found = _HOST.fullmatch(part)
        if found is None or not 0 < int(found["port"]) < 65_536:
            raise ValueError(
                f"bootstrap.servers has {part!r}: write host:port, several with commas in between."
            )
        made.append(Address(found["v6"] or found["host"], int(found["port"])))
    if not made:
        raise ValueError(
            "bootstrap.servers is missing: name at least one broker of the cluster as host:port."
        )
    return tuple(dict.fromkeys(made))


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, NAMES, 1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return "It has no effect on the connection to the cluster; remove it."


def _number(found: Mapping[str, str], name: str, least: Any, most: Any) -> int:
    text = found[name]
    if not re.fullmatch(r"[0-9]{1,15}", text) or not least <= int(text) <= most:
        raise ValueError(f"{name} is {text!r}: use a whole number from {least} to {most}.")
    return int(text)


def _refuse_without_effect(found: Mapping[str, str], protocol: str) -> None:
    """A password that is never sent, or a certificate that is never shown, is a mistake."""
    for prefix, part in (("sasl.", "SASL"), ("ssl.", "SSL")):
        named = [name for name in found if name.startswith(prefix)]
        if named and part not in protocol:
            better = " or ".join(one for one in PROTOCOLS if part in one)
            raise ValueError(
                f"{named[0]} has no effect with security.protocol={protocol}: use {better}, or remove it."
            )


# --- TLS ---------------------------------------------------------------------------------------------------


def _tls(found: Mapping[str, str]) -> ssl.SSLContext:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if found.get(name, "PEM").upper() != "PEM":
            raise ValueError(
                f"{name} is {found[name]!r}: only PEM is known; convert the store with keytool or openssl."
            )
    location = _one_of(found, "ssl.ca.location", "ssl.truststore.location")
    text = _one_of(found, "ssl.ca.pem", "ssl.truststore.certificates")
    context = _tried(
        "The authorities (ssl.ca.location)", lambda: _trusting(location or None, text.replace("\\n", "\n"))
    )
    algorithm = found.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise ValueError(f"ssl.endpoint.identification.algorithm is {algorithm!r}: use https, or none.")
    verification = found.get("enable.ssl.certificate.verification", "true").lower()
    if verification not in ("true", "false"):
        raise ValueError(f"enable.ssl.certificate.verification is {verification!r}: use true or false.")
    if algorithm != "https" or verification == "false":
        context.check_hostname = False
    if verification == "false":
        context.verify_mode = ssl.CERT_NONE
    certificate = _one_of(found, "ssl.certificate.location", "ssl.keystore.location")
    key = found.get("ssl.key.location")
    if key and not certificate:
        raise ValueError("ssl.key.location needs ssl.certificate.location.")
    if certificate:
        password = found.get("ssl.key.password", "")
        _tried(
            "The client's certificate (ssl.certificate.location, ssl.key.location)",
            # Without a password OpenSSL would ask on the terminal.
            lambda: context.load_cert_chain(certificate, key or None, password=lambda: password),
        )
    return context


def _trusting(location: str | None, text: str) -> ssl.SSLContext:
    if location is not None and Path(location).is_dir():
        return ssl.create_default_context(capath=location)
    if location is None and not text:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=location, cadata=text or None)


def _tried(what: str, work: Callable[[], Result]) -> Result:
    try:
        return work()
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} cannot be used: {getattr(error, 'strerror', None) or error}.") from None


def _one_of(found: Mapping[str, str], first: str, second: str) -> str:
    if found.get(first) and found.get(second):
        raise ValueError(f"{first} and {second} are the same setting: use one of them.")
    return found.get(first) or found.get(second) or ""


# --- SASL --------------------------------------------------------------------------------------------------


def _login(found: Mapping[str, str]) -> Login:
    named = _one_of(found, "sasl.mechanism", "sasl.mechanisms").upper()
    mechanism = next((one for one in MECHANISMS if one == named), None)
    if mechanism is None:
        given = f"sasl.mechanism is {named!r}" if named else "sasl.mechanism is missing"
        raise ValueError(f"{given}: use one of {', '.join(MECHANISMS)}.")
    options = _jaas(found.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        return _bearer(found, options)
    user = found.get("sasl.username") or options.get("username", "")
    password = found.get("sasl.password") or options.get("password", "")
    file = found.get("sasl.password.file", "")
    if not user or bool(password) == bool(file):
        raise ValueError(
            f"{mechanism} needs sasl.username, and either sasl.password or sasl.password.file "
            "(or sasl.jaas.config with username and password)."
        )
    return Login(mechanism, user, text_of_file(file) if file else text_of(password))


def _jaas(text: str) -> dict[str, str]:
    """Return the options of `Class required name="value" …;` as Java's clients read them."""
    if not text:
        return {}
    if not re.fullmatch(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b.*;?\s*", text, re.DOTALL):
        raise ValueError(
            'sasl.jaas.config cannot be read: write `class required username="…" password="…";`.'
        )
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not plain else plain
        for name, quoted, plain in _JAAS_OPTION.findall(text)
    }


def _bearer(found: Mapping[str, str], options: Mapping[str, str]) -> Login:
    extensions = [
        (name.removeprefix("extension_"), value)
        for name, value in options.items()
        if name.startswith("extension_")
    ]
    for pair in filter(None, found.get("sasl.oauthbearer.extensions", "").split(",")):
        name, sign, value = pair.strip().partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z]+", name) or name == "auth":
            raise ValueError(
                f"sasl.oauthbearer.extensions has {pair!r}: write name=value, the name of letters."
            )
        extensions.append((name, value))
    url = found.get("sasl.oauthbearer.token.endpoint.url", "")
    file = found.get("sasl.oauthbearer.token.file", "")
    if url.startswith("file:"):
        file, url = unquote(urlsplit(url).path), ""
    client = found.get("sasl.oauthbearer.client.id") or options.get("clientId", "")
    if file:
        return Login("OAUTHBEARER", client, text_of_file(file), tuple(extensions))
    secret = found.get("sasl.oauthbearer.client.secret") or options.get("clientSecret", "")
    if not (url and client and secret):
        raise ValueError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url with sasl.oauthbearer.client.id and "
            "sasl.oauthbearer.client.secret, or a token in sasl.oauthbearer.token.file."
        )
    if problem := url_problem(url):
        raise ValueError(f"sasl.oauthbearer.token.endpoint.url {problem}: {url[:200]!r}.")
    scope = found.get("sasl.oauthbearer.scope") or options.get("scope", "")
    credentials = ClientCredentials(url, client, secret, scope)
    return Login("OAUTHBEARER", client, credentials.secret, tuple(extensions))
