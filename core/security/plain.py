"""SASL/PLAIN, the server's side, without I/O (RFC 4616): `[authorization id] NUL user NUL password`."""

from __future__ import annotations

from dataclasses import dataclass, field


class PlainError(Exception):
    """The message is not one of SASL/PLAIN, or asks to act as another user."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user and the password that is to be checked. Its repr does not show the password."""

    user: str
    password: str = field(repr=False)


def parse(message: bytes) -> Login:
    """Return the login of a message.

    Raises PlainError unless it has exactly three parts, the last two not empty, and the authorization id is empty or
    the user (CVE-2017-12610).
    """
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise PlainError("not UTF-8") from None
    if len(parts) != 3:
        raise PlainError("not three parts")
    authorization_id, user, password = parts
    if not user or not password:
        raise PlainError("no user or no password")
    if authorization_id not in ("", user):
        raise PlainError("another authorization id")
    return Login(user, password)
