"""The settings of several gateways over one cluster: their names and URLs, this one's name, the secret they share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from app.setting_tables import did_you_mean
from core.config import Config, Gateway
from core.errors import StartupError
from core.security.private_files import is_private

_EXAMPLE = "--gateway a=http://10.0.0.1:8082 --gateway b=http://10.0.0.2:8082 --gateway-name a"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
# 128 bits, the least for an HMAC key that cannot be guessed (RFC 2104 recommends the length of the hash).
_LEAST_SECRET = 16
_MOST_SECRET = 4_096
# More processes than cores are of no use, and each takes 60 MiB.
MAX_WORKERS = 64


def of_gateways(
    environ: Mapping[str, str], given: Sequence[str], name: str | None, names: Sequence[str]
) -> dict[str, object]:
    """Return the fields of `Config` from the flags, or from the environment, where `names` are the gateways.

    Raises StartupError.
    """
    values: dict[str, object] = {"gateways": parse_gateways(given or names)}
    own = name if name is not None else environ.get("SLUICE_GATEWAY_NAME", "").strip()
    values["gateway_name"] = own
    for field in ("gateway_secret_file", "gateway_ca"):
        if file := environ.get(f"SLUICE_{field.upper()}", ""):
            values[field] = Path(file).expanduser()
    return values


def parse_gateways(texts: Sequence[str]) -> tuple[Gateway, ...]:
    """Return the gateways from `name=http://host:port`, their names and URLs being different. Raises StartupError."""
    found: list[Gateway] = []
    for text in texts:
        name, separator, url = text.partition("=")
        try:
            parts = urlsplit(url.strip())
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
        except ValueError:
            raise _unlike(text) from None
        wrong = (
            parts.scheme not in ("http", "https")
            or parts.path not in ("", "/")
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        )
        if not separator or not _NAME.fullmatch(name) or not port or not parts.hostname or wrong:
            raise _unlike(text)
        found.append(Gateway(name, parts.scheme, parts.hostname, port))
    for what, values in (("names", [g.name for g in found]), ("addresses", [g[1:] for g in found])):
        if len(set(values)) < len(values):
            raise StartupError(
                f"The gateways must have different {what}; these are {', '.join(map(str, found))}."
            )
    return tuple(found)


def _unlike(text: str) -> StartupError:
    return StartupError(f"The gateway {text!r} is not like a=http://10.0.0.1:8082.")


def check_gateways(config: Config) -> None:
    """Raise StartupError for a list of gateways without this one's name, and without a secret."""
    names = [gateway.name for gateway in config.gateways]
    if config.gateway_name and not names:
        raise StartupError(f"--gateway-name needs the list of all gateways: {_EXAMPLE}.")
    if not names:
        return
    if config.gateway_name not in names:
        wrong = f"{config.gateway_name!r} is not one of them" if config.gateway_name else "it is missing"
        near = did_you_mean(config.gateway_name, names)
        raise StartupError(
            f"--gateway-name says which of the gateways {', '.join(names)} this one is; {wrong}.{near}"
        )
    if len(names) > 1 and config.gateway_secret_file is None:
        raise StartupError(
            "Gateways prove to each other by a secret that they forward a request: write the same 32 random bytes "
            "into a file on each host and name it by SLUICE_GATEWAY_SECRET_FILE."
        )


def check_workers(config: Config) -> None:
    """Raise StartupError for a number of workers that cannot be started."""
    if not 1 <= config.workers <= MAX_WORKERS:
        raise StartupError(f"--workers must be from 1 to {MAX_WORKERS}, not {config.workers}.")
    if config.workers > 1 and not any(one.scheme == "http" for one in config.listeners):
        raise StartupError("--workers is for HTTP, and there is no HTTP listener: leave it out.")
    if config.workers > 1 and config.peers:
        raise StartupError("--workers cannot be used with --peer: a broker of a cluster is one process.")


def read_secret(path: Path) -> bytes:
    """Return the secret of the gateways, without blanks at its ends. Raises StartupError."""
    try:
        with path.open("rb") as file:
            private = is_private(path.stat())
            secret = file.read(_MOST_SECRET + 1).strip()
    except OSError as error:
        raise StartupError(f"Cannot read the secret of the gateways {path}: {error.strerror}.") from None
    if not private:
        raise StartupError(f"Other users may read the secret of the gateways {path}. Run: chmod 600 {path}")
    if not _LEAST_SECRET <= len(secret) <= _MOST_SECRET:
        raise StartupError(
            f"The secret of the gateways {path} has {len(secret)} bytes; it needs {_LEAST_SECRET} to {_MOST_SECRET}. "
            f"Make one with: openssl rand -base64 32 > {path}"
        )
    return secret
