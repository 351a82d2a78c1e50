"""The settings of upstream mode: the Kafka cluster whose gateway this process is, and the properties of its clients.

`--upstream` names brokers of the cluster. `--upstream-config` is a file in the format and with the names of Kafka's
own clients, such as `client.properties`. Its values can be secrets: no message shows one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import CALLER, IDENTITIES, Config, Endpoint, Upstream
from core.errors import StartupError
from core.security.private_files import is_private

if TYPE_CHECKING:
    from core.client.settings import ClientSettings

SERVERS = "bootstrap.servers"
_MAX_FILE_BYTES = 1024 * 1024
# Properties whose values are secrets. A file with one of them is for its owner alone.
SECRETS = frozenset(
    {
        "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.client.secret", "ssl.key.password",
        "ssl.keystore.password", "ssl.keystore.key", "ssl.truststore.password", "ssl.key.pem",
    }
)  # fmt: skip
_EXAMPLE = "--upstream b1:9092,b2:9092"
_BROKER = re.compile(r"(?:[a-z0-9_]+://)?(\[[0-9a-f:.%]+\]|[^\s:;/,@\[\]]+):([0-9]{1,5})", re.I)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# Listeners that a gateway has no broker for.
_OF_A_BROKER = {
    "kafka": "Kafka clients connect to the brokers of the cluster: GET /api/v1/brokers lists them",
    "kafka07": "only the embedded broker has the byte offsets of Kafka 0.7",
    "peer": "only embedded brokers replicate to each other",
    "text": "only the embedded broker serves the line protocol",
}


def upstream_of(
    environ: Mapping[str, str],
    servers: Sequence[str] = (),
    config: str | None = None,
    identity: str | None = None,
) -> Upstream | None:
    """Return the cluster of the settings, from flags or the environment; None without one. Raises StartupError."""
    texts = servers or (environ.get("SLUICE_UPSTREAM", ""),)
    file = config if config is not None else environ.get("SLUICE_UPSTREAM_CONFIG", "")
    properties = read_properties(Path(file).expanduser()) if file else {}
    named = _parts(texts) or _parts((properties.pop(SERVERS, ""),))
    who = identity if identity is not None else environ.get("SLUICE_UPSTREAM_IDENTITY", "")
    if not named:
        for what, given in (("SLUICE_UPSTREAM_CONFIG", file), ("SLUICE_UPSTREAM_IDENTITY", who)):
            if given:
                raise StartupError(f"{what} belongs to a Kafka cluster, and none is named: add {_EXAMPLE}.")
        return None
    properties.pop(SERVERS, None)
    path = Path(file).expanduser() if file else None
    read = None if path is None else partial(_without_servers, path)
    return Upstream(tuple(map(_checked, named)), properties, _identity(who), path, read)


def _without_servers(path: Path) -> dict[str, str]:
    """Return the properties of the file of a gateway. Which brokers it began with does not change."""
    properties = read_properties(path)
    properties.pop(SERVERS, None)
    return properties


def _parts(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _checked(text: str) -> str:
    match = _BROKER.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise StartupError(f"The upstream broker {text!r} is not host:port, as in {_EXAMPLE}.")
    return f"{match[1]}:{int(match[2])}"


def _identity(text: str) -> str:
    name = text.strip().lower() or IDENTITIES[0]
    if name not in IDENTITIES:
        raise StartupError(
            f"SLUICE_UPSTREAM_IDENTITY must be {' or '.join(IDENTITIES)}, not {text!r}: the gateway calls the "
            "cluster with its own credentials, or with those of each request."
        )
    return name


def read_properties(path: Path, name: str = "SLUICE_UPSTREAM_CONFIG") -> dict[str, str]:
    """Return the properties of a file in Java's format; `name` is what names the file.

    Raises StartupError, which shows no value.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartupError(f"Cannot read the file {path} of {name}: {error.strerror}.") from None
    if len(data) > _MAX_FILE_BYTES:
        raise StartupError(f"The file {path} of {name} has more than {_MAX_FILE_BYTES} bytes.")
    try:
        found = parse_properties(data.decode())
    except ValueError as error:
        raise StartupError(f"The file {path} of {name} cannot be read: {_without_values(error)}.") from None
    if SECRETS & found.keys() and not is_private(status):
        raise StartupError(f"Others may read the password in {path} ({name}). Change that with chmod 600.")
    return found


def _without_values(error: ValueError) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def parse_properties(text: str) -> dict[str, str]:
    """Return name → value of a text in the format of `java.util.Properties`. Raises ValueError, which shows no value.

    A name that is there more than once has its last value, as in Java.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line)
        try:
            found[_unescaped(name)] = _unescaped(value)
        except ValueError:
            raise ValueError(f"line {number} has a broken \\u escape") from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end in an odd number of backslashes with the next; leave comments and blank lines out."""
    joined, began = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not joined:
            if not line or line[0] in "#!":
                continue
            began = number
        joined += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield began, joined
        joined = ""
    if joined:
        yield began, joined


def _split(line: str) -> tuple[str, str]:
    """Split a line at the first `=`, `:` or blank that no backslash precedes."""
    match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", line, re.S)
    assert match is not None
    # Files of other programs have blanks at the end of a line by mistake; Java would keep them.
    return match[1], match[2].rstrip(" \t\f")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.S)


def listeners_of_a_gateway(listeners: tuple[Endpoint, ...], given: bool) -> tuple[Endpoint, ...]:
    """Return the listeners in upstream mode: the HTTP ones of the default, or those that were given."""
    return listeners if given else tuple(one for one in listeners if one.scheme == "http")


def check_upstream(config: Config) -> None:
    """Raise StartupError for a setting of an embedded broker in upstream mode; it says why."""
    if config.upstream is None:
        return
    # Imported here: an embedded broker has no client.
    from core.client.properties import client_settings

    try:
        settings = client_settings({**config.upstream.properties, SERVERS: ",".join(config.upstream.servers)})
    except ValueError as error:
        raise StartupError(f"SLUICE_UPSTREAM_CONFIG: {error}") from None
    for endpoint in config.listeners:
        if (reason := _OF_A_BROKER.get(endpoint.scheme)) is not None:
            raise StartupError(f"--upstream and the listener {endpoint} exclude each other: {reason}.")
    for flag, given, reason in (
        ("--peer", config.peers, "the cluster replicates its records itself"),
        ("--zookeeper", config.zookeeper, "a gateway registers no broker"),
        ("--advertised", config.advertised, "a gateway has no port for Kafka clients"),
        ("SLUICE_TOPIC_DEFAULTS", config.topic_defaults, "the cluster has defaults of its own"),
    ):
        if given:
            raise StartupError(f"--upstream and {flag} exclude each other: {reason}.")
    if config.upstream.identity == CALLER:
        _check_callers(config, settings)


def _check_callers(config: Config, settings: ClientSettings) -> None:
    """Raise StartupError unless each request brings credentials that the cluster can check, and nothing else does."""
    flag = f"--upstream-identity {CALLER}"
    if settings.login is None:
        raise StartupError(
            f"{flag} needs a cluster whose clients log in: set security.protocol and sasl.mechanism in the file of "
            "--upstream-config."
        )
    wanted = "jwt" if settings.login.mechanism == "OAUTHBEARER" else "basic"
    for endpoint in config.listeners:
        if endpoint.authentication != (wanted,):
            raise StartupError(
                f"{flag} passes credentials on to the cluster, by {settings.login.mechanism}: give the listener "
                f"{endpoint} the option auth={wanted}, and no other."
            )
    for name, given in (
        ("--super-user", config.super_users),
        ("SLUICE_AUTHORIZER", config.authorizer),
        ("SLUICE_ADMIN_PASSWORD_FILE", config.admin_password_file),
        ("SLUICE_CONSOLE_OIDC", config.console_oidc),
    ):
        if given:
            raise StartupError(
                f"{flag} and {name} exclude each other: users and rights are those of the cluster."
            )
