"""core.security.plain: three parts, no other user, and no password in a repr."""

from __future__ import annotations

import pytest

from core.security.plain import Login, PlainError, parse


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_message_has_a_user_and_a_password(message: bytes) -> None:
    login = parse(message)
    assert login == Login("alice", "secret")
    assert "secret" not in repr(login)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"alice\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"bob\0alice\0secret",
        b"\0a\0b\0c",
        b"\0a\0\xff",
    ],
)
def test_any_other_message_is_refused(message: bytes) -> None:
    with pytest.raises(PlainError):
        parse(message)
