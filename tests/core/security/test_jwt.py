"""core.security.jwt and jwks: which tokens let in, and issuers that misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from core.clock import ManualClock
from core.errors import BrokerError, ErrorCode
from core.security import jwks
from core.security.jwt import JwtVerifier
from core.security.principal import Principal
from tests.issuer import OK, Issuer, bad_tokens, public_jwk

KEYS, DISCOVERY = "/keys", "/.well-known/openid-configuration"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    async with Issuer(lambda: clock.wall_ms() / 1000).served() as made:
        yield made


@pytest.fixture
def verifier(issuer: Issuer, clock: ManualClock) -> JwtVerifier:
    return JwtVerifier([issuer.settings], clock)


async def is_refused(verifier: JwtVerifier, token: str) -> bool:
    try:
        await verifier.verify(token)
    except BrokerError as error:
        assert (
            error.code is ErrorCode.SASL_AUTHENTICATION_FAILED and error.message == "The token is not valid."
        )
        return True
    return False


async def test_good_tokens_of_each_kind_of_key(verifier: JwtVerifier, issuer: Issuer) -> None:
    expires_ms = (int(issuer.now()) + 600) * 1000
    for key, algorithm in (("rsa", "RS256"), ("rsa", "PS256"), ("ec", "ES256"), ("ed", "EdDSA")):
        assert await verifier.verify(issuer.mint(key, algorithm)) == (Principal(name="alice"), expires_ms)
    for more in (
        {"aud": ["x", "other"]},
        {"nbf": int(issuer.now()) + 29},
        {"typ": "Bearer"},
        {"token_use": "access"},
    ):
        assert (await verifier.verify(issuer.mint(**more))).principal == Principal(name="alice")
    for kind in ("JWT", "AT+JWT", "application/at+jwt"):
        assert not await is_refused(verifier, issuer.mint(header={"typ": kind}))
    assert not await is_refused(verifier, issuer.signed({"alg": "RS256", "kid": "rsa"}, issuer.claims()))
    assert issuer.asked == [DISCOVERY, KEYS]


async def test_bad_tokens(verifier: JwtVerifier, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "core")
    await verifier.verify(issuer.mint())
    tokens = bad_tokens(issuer)
    assert len(tokens) >= 30
    taken = [name for name, token in tokens.items() if not await is_refused(verifier, token)]
    assert taken == []
    # A reason for each, without the token, and on one line.
    reasons = [record.message for record in caplog.records if record.name == "core.security.jwt"]
    assert len(reasons) == len(tokens) and not any("\n" in reason for reason in reasons)
    assert not any(
        part in "".join(reasons) for token in tokens.values() for part in token.split(".") if len(part) > 20
    )
    assert not set(issuer.asked) - {DISCOVERY, KEYS}


async def test_a_token_without_key_id_fits_the_only_key(verifier: JwtVerifier, issuer: Issuer) -> None:
    issuer.keys = [
        {**public_jwk("rsa"), "kid": "else"},
        public_jwk("rsa-enc", use="enc"),
        {"kty": "oct", "k": "AAAA"},
    ]
    token = issuer.signed({"alg": "RS256", "typ": "at+jwt"}, issuer.claims())
    assert not await is_refused(verifier, token)


async def test_keys_that_are_for_something_else_are_not_used(issuer: Issuer, clock: ManualClock) -> None:
    unfit = [
        public_jwk("rsa", use="enc"), public_jwk("rsa", alg="RS512"), public_jwk("rsa", key_ops=["sign"]),
        public_jwk("weak", kid="rsa"), {"kty": "oct", "kid": "rsa", "k": "AAAA"},
        {"kty": "RSA", "kid": "rsa", "n": 1}, {"kty": "RSA", "kid": "rsa"}, "rsa", {**public_jwk("rsa"), "kid": 7},
    ]  # fmt: skip
    for key in unfit:
        issuer.keys = [key, public_jwk("ec")]
        verifier = JwtVerifier([issuer.settings], clock)
        assert not await is_refused(verifier, issuer.mint("ec", "ES256"))
        assert await is_refused(verifier, issuer.mint()), key


async def test_a_claim_and_a_prefix_make_the_principal(issuer: Issuer, clock: ManualClock) -> None:
    settings = replace(issuer.settings, principal_claim="azp", principal_prefix="corp|")
    verifier = JwtVerifier([settings], clock)
    assert (await verifier.verify(issuer.mint(azp="app"))).principal == Principal(name="corp|app")
    assert await is_refused(verifier, issuer.mint())


async def test_a_key_of_one_issuer_is_none_of_another(issuer: Issuer, clock: ManualClock) -> None:
    async with Issuer(issuer.now).served() as second:
        second.keys = [public_jwk("rsa-other")]
        verifier = JwtVerifier([issuer.settings, replace(second.settings, principal_prefix="2|")], clock)
        assert (await verifier.verify(second.mint("rsa-other"))).principal == Principal(name="2|alice")
        assert await is_refused(verifier, second.mint("rsa"))
        assert await is_refused(verifier, issuer.mint("rsa-other"))


async def test_a_token_ends_with_its_time_also_if_it_is_remembered(
    verifier: JwtVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    token = issuer.mint()
    await verifier.verify(token)
    clock.advance(599)
    assert not await is_refused(verifier, token)
    # 30 s for clocks that differ, and no more.
    clock.advance(30)
    assert not await is_refused(verifier, token)
    clock.advance(1)
    assert await is_refused(verifier, token)


async def test_a_token_is_verified_again_after_five_minutes(
    verifier: JwtVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    token = issuer.mint(exp=int(issuer.now()) + 36_000)
    await verifier.verify(token)
    # The issuer withdraws its key; the broker learns that with its next fetch.
    issuer.keys = [public_jwk("ec")]
    clock.advance(40)
    await is_refused(verifier, issuer.mint("rsa-other"))
    assert not await is_refused(verifier, token)
    clock.advance(260)
    assert await is_refused(verifier, token)


async def test_an_unknown_key_is_asked_for_once_each_half_minute(
    verifier: JwtVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    await verifier.verify(issuer.mint())
    issuer.keys.append(public_jwk("rsa-new"))
    clock.advance(29)
    assert await is_refused(verifier, issuer.mint("rsa-new"))
    assert len(issuer.asked) == 2
    clock.advance(1)
    found = await asyncio.gather(
        *(is_refused(verifier, issuer.mint("rsa-new", sub=f"u{n}")) for n in range(9))
    )
    assert not any(found) and len(issuer.asked) == 4


async def test_keys_survive_an_outage_and_are_fetched_each_hour(
    verifier: JwtVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    await verifier.verify(issuer.mint())
    issuer.answers[DISCOVERY] = b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n"
    clock.advance(3_601)
    assert not await is_refused(verifier, issuer.mint())
    assert not await is_refused(verifier, issuer.mint(sub="bob"))
    assert issuer.asked == [DISCOVERY, KEYS, DISCOVERY]
    issuer.answers.clear()
    issuer.keys = [public_jwk("rsa-new")]
    clock.advance(31)
    assert await is_refused(verifier, issuer.mint(sub="carol"))
    assert not await is_refused(verifier, issuer.mint("rsa-new"))


async def test_an_issuer_that_starts_later_is_asked_again(
    verifier: JwtVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    issuer.answers[KEYS] = b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n"
    assert await is_refused(verifier, issuer.mint()) and await is_refused(verifier, issuer.mint())
    assert len(issuer.asked) == 2
    issuer.answers.clear()
    clock.advance(5)
    assert not await is_refused(verifier, issuer.mint())


def document(value: object) -> bytes:
    body = json.dumps(value).encode()
    return OK + f"content-length: {len(body)}\r\n\r\n".encode() + body


def redirect(location: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("path", [DISCOVERY, KEYS])
async def test_issuers_that_misbehave(
    path: str, issuer: Issuer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with Issuer(issuer.now).served() as other:
        elsewhere = {"issuer": issuer.url, "jwks_uri": f"{other.url}/keys"}
        answers = {
            "a redirect to another origin": redirect(f"{other.url}/keys"),
            "a redirect to a file": redirect("file:///etc/passwd"),
            "an error": b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n",
            "not HTTP": b"\0\1\2\3",
            "nothing": b"",
            "half": OK + b"content-length: 1000\r\n\r\n{",
            "not JSON": OK + b"content-length: 4\r\n\r\nkeys",
            "not UTF-8": OK + b"content-length: 4\r\n\r\n\"\xff\xff\"",
            "a list": document([]),
            "no keys": document({}),
            "deep": OK + b"content-length: 200000\r\n\r\n" + b"[" * 200_000,
            "too large": OK + b"\r\n" + b" " * (jwks.MAX_BYTES + 1),
            "compressed": OK + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
            "keys at another origin": document(elsewhere),
            "keys in a file": document({"issuer": issuer.url, "jwks_uri": "file:///etc/passwd"}),
            "keys over http": document({"issuer": issuer.url, "jwks_uri": "http://169.254.169.254/keys"}),
            "keys of a number": document({"issuer": issuer.url, "jwks_uri": 7}),
            "of another issuer": document({"issuer": other.url, "jwks_uri": f"{issuer.url}/keys"}),
        }  # fmt: skip
        for name, answer in answers.items():
            issuer.answers = {path: answer}
            caplog.clear()
            assert await is_refused(JwtVerifier([issuer.settings], clock), issuer.mint()), name
            assert any("no new keys of the issuer" in record.message for record in caplog.records), name
        assert other.asked == []


async def test_an_issuer_that_does_not_answer(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.05)
    issuer.silent.clear()
    assert await is_refused(verifier, issuer.mint())


async def test_keys_at_another_address_that_is_configured(issuer: Issuer, clock: ManualClock) -> None:
    async with Issuer(issuer.now).served() as other:
        other.keys = [public_jwk("rsa-other")]
        settings = replace(issuer.settings, jwks_uri=f"{other.url}/keys")
        assert not await is_refused(JwtVerifier([settings], clock), issuer.mint("rsa-other"))
        assert issuer.asked == [] and other.asked == [KEYS]


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example.org", "file:///etc/passwd", "ftp://127.0.0.1/", "https://", "https://a@b.example.org",
        "https://issuer.example.org/#a", "https://issuer.example.org:x", "http://169.254.169.254", "//a", "",
        "http://127.0.0.1.example.org", "http://[::2]", "https://a b",
    ],
)  # fmt: skip
async def test_addresses_that_are_never_asked(url: str, clock: ManualClock) -> None:
    assert jwks.url_problem(url)
    with pytest.raises(jwks.JwksError):
        await jwks.fetch(url)
    for good in (
        "https://issuer.example.org/a?b",
        "http://127.0.0.1:1",
        "http://[::1]:1/a",
        "http://localhost",
    ):
        assert jwks.url_problem(good) == ""


async def test_remembered_tokens_are_bounded(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.security.jwt._MAX_CACHED", 3)
    for number in range(10):
        await verifier.verify(issuer.mint("ec", "ES256", sub=f"u{number}"))
    assert len(verifier._verified) <= 3
