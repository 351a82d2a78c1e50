"""How a command logs in: a user with a password, a token, a client certificate; from files, never from arguments.

In this order: the options `--user` and `--token-file`, a user in the URL, `SLUICE_TOKEN`, the file of credentials.
Other users of a machine can see the arguments of a process, so that none of them is a secret.
"""

from __future__ import annotations

import base64
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from app.commands.errors import CommandError

# A token for gateways that ask their clients to log in.
TOKEN_VARIABLE = "SLUICE_TOKEN"
_MAX_SECRET_BYTES = 10_000
_SHAPE = '["https://broker.example.org:8082"] with token = "…", or user = "…" and password = "…"'


@dataclass(frozen=True)
class Login:
    """What the options say. Secrets are read when `header` is called, once for each command."""

    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None

    def header(self, url: str) -> str | None:
        """Return the value of Authorization for a gateway; None for none. Raises UsageError and CommandError."""
        has_user = "@" in urlsplit(url).netloc
        given = [name for name, one in (("--user", self.user), ("--token-file", self.token_file)) if one]
        if len(given) + has_user > 1 and given:
            raise click.UsageError(f"{' and '.join([*given, 'a user in the URL'][:2])} exclude each other.")
        if self.password_file and not self.user:
            raise click.UsageError("--user-password-file needs --user.")
        if self.user:
            return basic(self.user, self._password())
        if self.token_file:
            return f"Bearer {_secret(self.token_file, 'token')}"
        if has_user:
            return None
        if token := os.environ.get(TOKEN_VARIABLE, "").strip():
            return f"Bearer {token}"
        return kept(url)

    def _password(self) -> str:
        if self.password_file:
            return _secret(self.password_file, "password")
        if not sys.stdin.isatty():
            raise click.UsageError(
                "There is no terminal to ask for a password on; add --user-password-file FILE, or -."
            )
        asked: str = click.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return asked


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a login to a command."""
    for option in reversed(
        (
            click.option("--user", metavar="NAME", help="Log in as this user; the password is asked for."),
            click.option("--user-password-file", metavar="FILE",
                         help="The file of that password; - is the first line of standard input."),
            click.option("--token-file", metavar="FILE", help="Log in with the token in this file."),
            click.option("--cert", envvar="SLUICE_CERT", metavar="FILE",
                         help="Your certificate for an https gateway, in PEM; SLUICE_CERT says the same."),
            click.option("--cert-key", envvar="SLUICE_CERT_KEY", metavar="FILE",
                         help="Its key, if --cert does not hold it; SLUICE_CERT_KEY says the same."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def basic(user: str, password: str) -> str:
    """Return the value of Authorization for a user and a password (RFC 7617, UTF-8)."""
    if ":" in user:
        raise click.BadParameter("A name with a colon cannot log in over HTTP.", param_hint="--user")
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def credentials_file() -> Path:
    """Return where credentials are kept: `~/.config/sluice/credentials`, or below XDG_CONFIG_HOME."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if home else Path.home() / ".config") / "sluice" / "credentials"


def kept(url: str) -> str | None:
    """Return the value of Authorization that the file of credentials has for a gateway.

    Raises CommandError for a file that others may read, or that cannot be read.
    """
    file = credentials_file()
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CommandError(
                    f"{file} holds credentials, and others than its owner may use it (mode {mode:04o}).",
                    f"Run `chmod 600 {file}`.",
                )
            content = msgspec.toml.decode(opened.read(1 << 20))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The reason could repeat a secret.
        raise CommandError(f"{file} is not TOML.", f"It looks like {_SHAPE}.") from None
    found = {origin(name): entry for name, entry in content.items()}.get(origin(url))
    if found is None:
        return None
    match found:
        case {"token": str(token)} if len(found) == 1:
            return f"Bearer {token}"
        case {"user": str(user), "password": str(password)} if len(found) == 2:
            return basic(user, password)
    raise CommandError(f"{file}: the entry of {origin(url)} cannot be used.", f"It looks like {_SHAPE}.")


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, in the form in which two of them can be compared."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return url
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def _secret(name: str, what: str) -> str:
    try:
        if name == "-":
            # What follows may be records.
            data = sys.stdin.buffer.readline(_MAX_SECRET_BYTES)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MAX_SECRET_BYTES)
        text = data.decode().rstrip("\r\n")
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"The {what} in {name} is not UTF-8.") from None
    if not text:
        raise CommandError(f"There is no {what} in {name}.")
    return text
