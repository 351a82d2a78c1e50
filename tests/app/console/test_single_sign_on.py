"""The login of the console at an OpenID provider that may lie: swapped codes, issuers, states, tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from core.clock import ManualClock
from core.config import OidcClient
from core.security.oidc import PENDING_SECONDS
from tests.app.http.test_authentication import PORT, Served
from tests.app.http.test_revocation import ends, waiting
from tests.issuer import OK, Issuer

ORIGIN = f"http://127.0.0.1:{PORT}"
CALLBACK = "/console/session/callback"
OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
CLIENT = "sluice-console"
REFUSED = "/console#/login-refused"


def document(value: Any, status: bytes = OK) -> bytes:
    body = json.dumps(value).encode()
    return status + f"content-length: {len(body)}\r\n\r\n".encode() + body


class Provider:
    """A provider, and the browser of a user between it and the broker."""

    def __init__(self, issuer: Issuer, served: Served) -> None:
        self.issuer = issuer
        self.served = served
        self.http = served.http

    async def begin(self) -> dict[str, str]:
        """Press the button; return the parameters for the provider. The browser keeps the cookie."""
        answer = await self.http.post("/console/session/oidc", headers=OWN)
        assert answer.status_code == 200, answer.text
        location = urlsplit(answer.json()["location"])
        assert f"{location.scheme}://{location.netloc}{location.path}" == f"{self.issuer.url}/authorize"
        return dict(parse_qsl(location.query))

    def sends(self, nonce: str | None, /, **changes: Any) -> None:
        """The provider answers the next code with an ID token."""
        token = self.issuer.mint(header={"typ": "JWT"}, **({"aud": CLIENT, "nonce": nonce} | changes))
        self.issuer.answers["/token"] = document({"id_token": token, "token_type": "Bearer"})

    async def back(self, **query: str) -> str:
        """The browser comes back from the provider; return where the broker leads it."""
        # The cookie is Lax: the browser sends it though another site leads here.
        answer = await self.http.get(CALLBACK, params=query, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 303 and answer.headers["cache-control"] == "no-store"
        return answer.headers["location"]

    async def user(self) -> str | None:
        """Whose session the browser has."""
        answer = await self.http.post("/console/session/token", headers=OWN)
        return answer.json()["user"] if answer.status_code == 200 else None


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with Issuer(lambda: ManualClock().wall_ms() / 1000).served() as issuer:
        client = OidcClient(issuer.url, CLIENT, ORIGIN + CALLBACK, session_minutes=20)
        served = Served(tmp_path / "data", "basic,jwt", (issuer.settings,), client)
        issuer.answers["/.well-known/openid-configuration"] = document(discovery(issuer))
        async with served.app.lifespan():
            yield Provider(issuer, served)
            await served.http.aclose()


def discovery(issuer: Issuer, /, **changes: Any) -> dict[str, Any]:
    return {
        "issuer": issuer.url,
        "jwks_uri": f"{issuer.url}/keys",
        "authorization_endpoint": f"{issuer.url}/authorize",
        "token_endpoint": f"{issuer.url}/token",
    } | changes


async def test_a_login_at_the_provider_opens_a_session(provider: Provider) -> None:
    asked = await provider.begin()
    assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
    assert asked["client_id"] == CLIENT and asked["redirect_uri"] == ORIGIN + CALLBACK
    assert len(asked["code_challenge"]) == len(asked["state"]) == len(asked["nonce"]) == 43
    provider.sends(asked["nonce"], sub="alice")
    assert await provider.back(code="c", state=asked["state"], iss=provider.issuer.url) == "/console"
    assert await provider.user() == "alice"
    again = await provider.back(code="c", state=asked["state"])
    assert again == REFUSED, "an answer is taken once"


async def test_a_session_of_the_provider_ends_with_its_time_and_so_do_its_streams(provider: Provider) -> None:
    """A user that is locked out at the provider must not stay for the 12 hours of other sessions."""
    served = provider.served
    await served.app.server.broker.topics.create("t")
    asked = await provider.begin()
    provider.sends(asked["nonce"], sub="alice")
    assert await provider.back(code="c", state=asked["state"]) == "/console"
    page = await provider.http.post("/console/session/token", headers=OWN)
    stream = await waiting(served, f"Bearer {page.json()['token']}", stream=True)
    served.clock.advance(20 * 60 - 1)
    assert await provider.user() == "alice"
    served.app.server.broker.logins.expire()
    assert not stream.done()
    served.clock.advance(1)
    assert await provider.user() is None
    served.app.server.broker.logins.expire()
    assert await ends(stream)


async def test_the_page_is_told_how_to_log_in(provider: Provider) -> None:
    answer = await provider.http.post("/console/session/token", headers=OWN)
    assert answer.json()["provider"] is True and answer.json()["password"] is True


async def test_another_page_cannot_begin_a_login(provider: Provider) -> None:
    for headers in ({}, {**OWN, "origin": "https://evil.example"}, {**OWN, "sec-fetch-site": "cross-site"}):
        answer = await provider.http.post("/console/session/oidc", headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wrong", ["state of another login", "no state", "no cookie", "cookie of another login"]
)
async def test_an_answer_belongs_to_the_browser_that_began(provider: Provider, wrong: str) -> None:
    """Code injection and login CSRF: an attacker's code does not log this browser in."""
    other = await provider.begin()
    others_cookie = str(provider.http.cookies.get(f"sluice-login-{PORT}"))
    own = await provider.begin()
    provider.sends(own["nonce"])
    query = {"code": "c", "state": own["state"]}
    if wrong == "state of another login":
        query["state"] = other["state"]
    elif wrong == "no state":
        del query["state"]
    else:
        provider.http.cookies.clear()
        if wrong == "cookie of another login":
            provider.http.cookies.set(f"sluice-login-{PORT}", others_cookie)
    assert await provider.back(**query) == REFUSED
    assert await provider.user() is None
    assert "/token" not in provider.issuer.asked, "the code is not even shown to the provider"


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": None}, {"nonce": "of another login"}, {"aud": "another-client"}, {"aud": "sluice"},
        {"aud": [CLIENT, "another"]}, {"azp": "another-client"}, {"iss": "https://other.example.org"},
        {"exp": 1}, {"iat": None}, {"sub": None}, {"sub": "ANONYMOUS"}, {"events": {}}, {"key": "rsa-other"},
    ],
    ids=str,
)  # fmt: skip
async def test_a_wrong_id_token_is_refused(provider: Provider, changes: dict[str, Any]) -> None:
    asked = await provider.begin()
    provider.sends(asked["nonce"], **changes)
    assert await provider.back(code="c", state=asked["state"]) == REFUSED
    assert await provider.user() is None
    assert "/token" in provider.issuer.asked


async def test_an_answer_of_another_issuer_is_refused(provider: Provider) -> None:
    """Mix-up (RFC 9207): the browser was at another provider."""
    asked = await provider.begin()
    provider.sends(asked["nonce"])
    assert await provider.back(code="c", state=asked["state"], iss="https://evil.example") == REFUSED
    assert "/token" not in provider.issuer.asked


async def test_an_answer_without_issuer_is_refused_if_the_provider_always_names_itself(
    provider: Provider,
) -> None:
    changes = {"authorization_response_iss_parameter_supported": True}
    provider.issuer.answers["/.well-known/openid-configuration"] = document(
        discovery(provider.issuer, **changes)
    )
    asked = await provider.begin()
    provider.sends(asked["nonce"])
    assert await provider.back(code="c", state=asked["state"]) == REFUSED


async def test_an_id_token_is_no_access_token_and_the_other_way_round(provider: Provider) -> None:
    asked = await provider.begin()
    access = provider.issuer.mint()
    provider.issuer.answers["/token"] = document({"id_token": access})
    assert await provider.back(code="c", state=asked["state"]) == REFUSED
    token = provider.issuer.mint(header={"typ": "JWT"}, aud=CLIENT, nonce="n")
    assert (await provider.served.get(authorization=f"Bearer {token}")).status_code == 401


@pytest.mark.parametrize(
    "answer",
    [
        document({"error": "invalid_grant"}, OK.replace(b"200 OK", b"400 Bad Request")),
        document({}), document([]), document({"id_token": 1}), document({"id_token": "a.b.c"}),
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", b"nonsense",
    ],
    ids=lambda answer: repr(answer[:60]),
)  # fmt: skip
async def test_what_the_provider_answers_to_a_code_is_checked(provider: Provider, answer: bytes) -> None:
    asked = await provider.begin()
    provider.issuer.answers["/token"] = answer
    assert await provider.back(code="c", state=asked["state"]) == REFUSED


async def test_a_refusal_of_the_provider_and_duplicates_are_refused(provider: Provider) -> None:
    asked = await provider.begin()
    assert await provider.back(error="access_denied", state=asked["state"]) == REFUSED
    asked = await provider.begin()
    provider.sends(asked["nonce"])
    state = asked["state"]
    answer = await provider.http.get(f"{CALLBACK}?code=a&code=b&state={state}")
    assert answer.headers["location"] == REFUSED
    # Nothing in the query says where the browser is led to.
    asked = await provider.begin()
    provider.sends(asked["nonce"])
    more = {"redirect": "https://evil.example", "return_to": "//evil.example"}
    assert await provider.back(code="c", state=asked["state"], **more) == "/console"


async def test_a_login_that_takes_too_long_is_refused(provider: Provider) -> None:
    asked = await provider.begin()
    provider.sends(asked["nonce"], exp=None)
    provider.served.clock.advance(PENDING_SECONDS)
    assert await provider.back(code="c", state=asked["state"]) == REFUSED
    assert "/token" not in provider.issuer.asked


async def test_logins_that_are_under_way_are_bounded(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.security.oidc.MAX_PENDING", 3)
    first = await provider.begin()
    cookie = str(provider.http.cookies.get(f"sluice-login-{PORT}"))
    for _ in range(3):
        await provider.begin()
    provider.http.cookies.clear()
    provider.http.cookies.set(f"sluice-login-{PORT}", cookie)
    provider.sends(first["nonce"])
    assert await provider.back(code="c", state=first["state"]) == REFUSED


@pytest.mark.parametrize(
    "changed",
    [
        lambda url: {"issuer": "https://evil.example"},
        lambda url: {"token_endpoint": "http://localhost:1/token"},
        lambda url: {"token_endpoint": "http://evil.example/token"},
        lambda url: {"token_endpoint": None},
        lambda url: {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_provider_that_names_wrong_addresses_is_not_used(
    provider: Provider, changed: Callable[[str], dict[str, Any]]
) -> None:
    issuer = provider.issuer
    issuer.answers["/.well-known/openid-configuration"] = document(discovery(issuer, **changed(issuer.url)))
    answer = await provider.http.post("/console/session/oidc", headers=OWN)
    assert answer.status_code == 503, answer.text


async def test_without_a_provider_there_is_no_such_login(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", "basic,token")
    async with served.app.lifespan():
        answer: httpx.Response = await served.http.post("/console/session/token", headers=OWN)
        assert answer.json()["provider"] is False
        assert (await served.http.post("/console/session/oidc", headers=OWN)).status_code == 404
        answer = await served.http.get(CALLBACK, params={"code": "c", "state": "s"})
        assert answer.headers["location"] == REFUSED
        await served.http.aclose()
