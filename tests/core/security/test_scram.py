"""core.security.scram: RFC 7677's example, what a man in the middle may change, and users that do not exist."""

from __future__ import annotations

import base64
import re

import pytest

from core.security.scram import (
    Mechanism,
    ScramCredential,
    ScramError,
    ScramExchange,
    credential_of,
    matches,
    salted_password,
    unescape,
)
from tests.core.security.scram_client import ScramClient

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential(mechanism: Mechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, SALT, iterations)
    return credential_of(mechanism, salted, SALT, iterations)


def exchange(
    mechanism: Mechanism = Mechanism.SHA_256, password: str = "pencil", known: bool = True
) -> ScramExchange:
    return ScramExchange(mechanism, lambda _: (credential(mechanism, password), known), b"n" * 24)


def test_the_example_of_rfc_7677() -> None:
    server = exchange()
    # The nonce of the server is its own choice; the RFC chose this one.
    server._own_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        server.final(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "ünï", "=", "a b"])
def test_both_sides_prove_that_they_know_the_password(mechanism: Mechanism, user: str) -> None:
    server, client = exchange(mechanism), ScramClient(user, "pencil", mechanism.digest)
    assert client.verify(server.final(client.final(server.first(client.first()))))
    assert server.user == user


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_place(mechanism: Mechanism) -> None:
    for server, password in ((exchange(mechanism), "pencils"), (exchange(mechanism, known=False), "pencil")):
        client = ScramClient("alice", password, mechanism.digest)
        final = client.final(server.first(client.first()))
        with pytest.raises(ScramError, match="wrong password, or no such user"):
            server.final(final)


def test_an_authorization_id_is_empty_or_the_user() -> None:
    client = ScramClient("alice", "pencil")
    client.header = "n,a=alice,"
    server = exchange()
    assert client.verify(server.final(client.final(server.first(client.first()))))
    with pytest.raises(ScramError, match="authorization id"):
        exchange().first(b"n,a=bob,n=alice,r=abc")


def test_extensions_are_signed_and_otherwise_ignored() -> None:
    client, server = ScramClient("alice", "pencil"), exchange()
    client.extension = ",tokenauth=true"
    assert client.verify(server.final(client.final(server.first(client.first()))))


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"n,,n=,r=abc", b"n,,n=alice", b"n,,n=alice,r=", b"n,,r=abc,n=alice", b"\xff",
        b"n,,n=alice,r=a\0b", b"n,,n=alice,r=a b", b"n,,n=a=b,r=abc", b"n,,m=x,n=alice,r=abc",
        # Channel binding: asked for, and offered although the server has none.
        b"p=tls-unique,,n=alice,r=abc", b"y,,n=alice,r=abc",
        b"n,,n=alice,r=" + b"a" * 2000,
    ],
)  # fmt: skip
def test_a_malformed_first_message_ends_the_exchange(first: bytes) -> None:
    with pytest.raises(ScramError):
        exchange().first(first)


def test_librdkafka_before_2_6_1_repeats_its_half_of_the_nonce() -> None:
    client, server = ScramClient("alice", "pencil"), exchange()
    client.before_nonce = client.nonce
    assert client.verify(server.final(client.final(server.first(client.first()))))
    for other in ("x", client.nonce[:-1], client.nonce * 2):
        client, server = ScramClient("alice", "pencil"), exchange()
        client.before_nonce = other
        final = client.final(server.first(client.first()))
        with pytest.raises(ScramError, match="another nonce"):
            server.final(final)


def _swap(pattern: bytes, replacement: bytes):  # type: ignore[no-untyped-def]
    return lambda final: re.sub(pattern, replacement, final, count=1)


@pytest.mark.parametrize(
    "change",
    [
        _swap(rb"r=.", b"r=X"),
        # The end of the nonce alone is right: CVE-2024-56128.
        _swap(rb"r=rOprNGfwEbeRWgbNEkqO", b"r="),
        _swap(rb"c=biws", b"c=eSws"),
        _swap(rb"c=biws", b"c=bixhPWJvYiw="),
        _swap(rb"p=.", b"p=!"),
        _swap(rb"p=.*", b"p="),
        _swap(rb"p=.*", b"p=AAAA"),
        _swap(rb",p=.*", b""),
        _swap(rb"^", b"x"),
        _swap(rb",p=", b",x=y,p="),
    ],
)
def test_a_final_message_that_was_changed_proves_nothing(change) -> None:  # type: ignore[no-untyped-def]
    server, client = exchange(), ScramClient("alice", "pencil")
    final = client.final(server.first(client.first()))
    changed = change(final)
    assert changed != final
    with pytest.raises(ScramError):
        server.final(changed)


def test_a_final_message_without_a_first_is_refused() -> None:
    with pytest.raises(ScramError):
        exchange().final(b"c=biws,r=abc,p=AAAA")


def test_a_password_is_compared_with_the_row() -> None:
    for mechanism in Mechanism:
        row = credential(mechanism, "pencil")
        assert matches(mechanism, row, "pencil")
        assert not matches(mechanism, row, "Pencil")
        assert "***" in repr(row) and str(row.stored_key) not in repr(row)


def test_names_are_escaped_by_two_sequences_alone() -> None:
    assert unescape("a=2Cb=3Dc") == "a,b=c"
    assert unescape("=3D2C") == "=2C"
    for bad in ("=", "a=2c", "a=2", "=41"):
        with pytest.raises(ScramError):
            unescape(bad)
