"""How a client proves the broker's identity and its own: TLS, and a login by SASL (PLAIN or SCRAM).

A password is in no text that these types make: `repr` leaves it out. Files are read at each connection, so that
renewed certificates and passwords are used without a restart.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.wire.errors import AuthenticationError, ConnectionLostError
from pipeline.wire.scram import ScramClient

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Tls:
    """What the client trusts, and the certificate that it shows; files in PEM format.

    Without `ca` (a file or a directory) it trusts the authorities of the machine. `certificate` may hold the key too.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    check_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context of one connection. Raises AuthenticationError for a file that cannot be used."""
        try:
            if self.ca is None:
                context = ssl.create_default_context()
            elif Path(self.ca).is_dir():
                context = ssl.create_default_context(capath=self.ca)
            else:
                context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise AuthenticationError(f"ssl.ca.location {self.ca}: {_reason(error)}") from None
        context.check_hostname = self.check_host
        if self.certificate is not None:
            try:
                # Without a password OpenSSL would ask on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except (OSError, ssl.SSLError, ValueError) as error:
                files = ", ".join(filter(None, (self.certificate, self.key)))
                raise AuthenticationError(
                    f"ssl.certificate.location, ssl.key.location {files}: {_reason(error)}"
                ) from None
        return context


@dataclass(frozen=True)
class Login:
    """A SASL mechanism, a user, and the user's password or one of its tokens, as text or in a file."""

    mechanism: str
    username: str
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None

    def secret(self) -> str:
        """Return the password. Raises AuthenticationError for a file that cannot be read, or is empty."""
        if self.password is not None:
            return self.password
        assert self.password_file is not None
        try:
            found = Path(self.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AuthenticationError(f"sasl.password.file {self.password_file}: {_reason(error)}") from None
        if not found:
            raise AuthenticationError(f"sasl.password.file {self.password_file} is empty")
        return found


@dataclass(frozen=True)
class Security:
    """TLS, a login, both, or (the default) neither. Picklable: workers get it with their ranges."""

    tls: Tls | None = None
    login: Login | None = None


def wrapped(raw: socket.socket, tls: Tls, host: str, name: str) -> ssl.SSLSocket:
    """Return the socket after a TLS handshake with `host`, whose certificate has been checked.

    Raises AuthenticationError if either side refuses the other, ConnectionLostError if the connection ended.
    """
    context = tls.context()
    try:
        return context.wrap_socket(raw, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of the broker at {name} is refused: {error.verify_message or _reason(error)}"
        ) from None
    except OSError as error:
        if is_refusal(error):
            raise AuthenticationError(f"no TLS with the broker at {name}: {_reason(error)}") from None
        raise ConnectionLostError(
            f"the connection to the broker at {name} was lost during the TLS handshake: {_reason(error)}"
        ) from None


def is_refusal(error: OSError) -> bool:
    """Return whether an error is one of TLS that another try does not change, and not an ended connection."""
    ended = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, TimeoutError)
    return isinstance(error, ssl.SSLError) and not isinstance(error, ended)


def log_in(login: Login, ask: Callable[[bytes], bytes]) -> None:
    """Log in; `ask` sends one SASL message and returns the broker's answer.

    Raises AuthenticationError if the broker cannot prove that it knows the password, which SCRAM asks for, and what
    `ask` raises if it refuses.
    """
    secret = login.secret()
    if login.mechanism == "PLAIN":
        ask(f"\0{login.username}\0{secret}".encode())
        return
    exchange = ScramClient(login.mechanism, login.username, secret)
    exchange.verify(ask(exchange.final(ask(exchange.first()))))


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    strerror = getattr(error, "strerror", None)
    return str(reason or strerror or error)


def _no_password() -> str:
    raise ValueError("the key is encrypted: give one without a password, readable by its user alone")
