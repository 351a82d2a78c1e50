"""The client's side of SCRAM against the examples of the RFCs, and against servers that lie."""

from __future__ import annotations

import pytest

from pipeline.wire.errors import AuthenticationError
from pipeline.wire.scram import ScramClient

# The example of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_example_of_rfc_7677() -> None:
    client = exchange()
    assert client.first() == FIRST
    assert client.final(SERVER_FIRST) == FINAL
    client.verify(SERVER_FINAL)


def test_a_name_is_escaped_and_each_exchange_has_a_nonce_of_its_own() -> None:
    first, second = (ScramClient("SCRAM-SHA-512", "a,b=c", "p").first() for _ in range(2))
    assert first.startswith(b"n,,n=a=2Cb=3Dc,r=") and first != second


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"v=" + b"A" * 43 + b"=", "does not know the password"),
        (b"v=", "does not know the password"),
        (b"", "does not know the password"),
        (b"v=not base64", "does not know the password"),
        (b"e=invalid-proof", "refuses the login"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_server_that_cannot_prove_itself_is_refused(message: bytes, says: str) -> None:
    client = exchange()
    client.final(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=says):
        client.verify(message)


def test_a_server_that_skips_its_first_message_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="does not know the password"):
        exchange().verify(SERVER_FINAL)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"r=rOpr", b"r=another", "another nonce"),
        (b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b"", "another nonce"),
        (b"i=4096", b"i=4095", "asks for 4095 iterations"),
        (b"i=4096", b"i=99999999", "asks for 99999999 iterations"),
        (b"i=4096", b"i=-1", "cannot be read"),
        (b"s=W22Z", b"s=%%%%", "cannot be read"),
        (b"r=rOpr", b"m=new,r=rOpr", "cannot be read"),
    ],
)
def test_a_first_message_out_of_bounds_is_refused(old: bytes, new: bytes, says: str) -> None:
    with pytest.raises(AuthenticationError, match=says):
        exchange().final(SERVER_FIRST.replace(old, new, 1))
