"""The session of the console: cookie, short bearer token, and what ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest

from core.security.acl import Operation, PatternType, ResourceType
from core.security.passwords import Identity
from core.security.principal import Principal
from core.security.sessions import (
    BEARER_SECONDS,
    IDLE_SECONDS,
    MAX_BEARERS,
    MAX_SECONDS,
    MAX_SESSIONS_PER_USER,
)
from core.vocabulary.users import ScopeRule
from tests.app.http.test_authentication import PASSWORD, PORT, Served, basic
from tests.app.http.test_revocation import ends, waiting

ORIGIN = f"http://127.0.0.1:{PORT}"
OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
LOGIN, TOKEN = "/console/session", "/console/session/token"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        yield made
        await made.http.aclose()


async def post(served: Served, path: str, cookie: str = "", **headers: str) -> httpx.Response:
    # The client's own jar would send the cookie where it should not.
    served.http.cookies.clear()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {**OWN, **({"cookie": cookie} if cookie else {}), **named}
    return await served.http.post(path, headers={k: v for k, v in sent.items() if v})


async def log_in(served: Served, credentials: str | None = None) -> str:
    answer = await post(served, LOGIN, authorization=credentials or basic("alice", PASSWORD))
    assert answer.status_code == 204, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


async def bearer(served: Served, cookie: str) -> str:
    answer = await post(served, TOKEN, cookie)
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["token"]
    return token


async def reads(served: Served, token: str) -> int:
    return (await served.get(authorization=f"Bearer {token}")).status_code


async def test_a_login_sets_a_cookie_and_the_cookie_gives_a_bearer_token(served: Served) -> None:
    answer = await post(served, LOGIN, authorization=basic("alice", PASSWORD))
    assert answer.status_code == 204 and answer.headers["cache-control"] == "no-store"
    cookie = SimpleCookie(answer.headers["set-cookie"])
    (morsel,) = cookie.values()
    assert morsel.key == f"sluice-session-{PORT}" and len(morsel.value) == 43
    assert (morsel["path"], morsel["samesite"], morsel["httponly"]) == (LOGIN, "Strict", True)
    assert not morsel["domain"] and int(morsel["max-age"]) == MAX_SECONDS
    got = await post(served, TOKEN, f"{morsel.key}={morsel.value}")
    assert got.headers["cache-control"] == "no-store"
    assert got.json()["user"] == "alice" and got.json()["expires_in_seconds"] == BEARER_SECONDS
    assert await reads(served, got.json()["token"]) == 200
    assert PASSWORD not in got.text and morsel.value not in got.text


async def test_over_https_the_cookie_is_secure(served: Served) -> None:
    headers = {**OWN, "origin": ORIGIN.replace("http", "https"), "authorization": basic("alice", PASSWORD)}
    answer = await served.http.post(LOGIN, headers=headers)
    assert answer.headers["set-cookie"].startswith("__Secure-")
    assert answer.headers["set-cookie"].endswith("; Secure")


async def test_a_login_with_wrong_credentials_is_refused_without_a_dialog(served: Served) -> None:
    for credentials in (basic("alice", "wrong"), basic("bob", PASSWORD), "Bearer x", ""):
        answer = await post(served, LOGIN, authorization=credentials, sec_fetch_site="")
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert "Basic" not in answer.headers["www-authenticate"]
    assert len(served.app.shared.sessions) == 0


async def test_the_api_reads_no_cookie(served: Served) -> None:
    cookie = await log_in(served)
    for method, path in (("GET", "/api/v1/topics"), ("POST", "/api/v1/topics/t/records"), ("GET", "/topics")):
        answer = await served.http.request(method, path, headers={**OWN, "cookie": cookie}, json={"value": 1})
        assert answer.status_code == 401, path


@pytest.mark.parametrize("path", [LOGIN, TOKEN])
async def test_requests_of_other_pages_are_refused(served: Served, path: str) -> None:
    cookie = await log_in(served)
    wrong = [
        {"origin": ""}, {"origin": "null"}, {"origin": "https://evil.example"}, {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"},
    ]  # fmt: skip
    for headers in wrong:
        sent = {**OWN, "cookie": cookie, "authorization": basic("alice", PASSWORD), **headers}
        answer = await served.http.post(path, headers={k: v for k, v in sent.items() if v})
        assert answer.status_code == 403, headers
        assert "set-cookie" not in answer.headers
        ended = await served.http.delete(LOGIN, headers={k: v for k, v in sent.items() if v})
        assert ended.status_code == 403
    assert len(served.app.shared.sessions) == 1


async def test_each_login_has_a_new_id(served: Served) -> None:
    """A session id that another put into the browser (fixation) never becomes valid."""
    planted = f"sluice-session-{PORT}={'A' * 43}"
    answer = await post(served, LOGIN, planted, authorization=basic("alice", PASSWORD))
    assert answer.headers["set-cookie"].partition(";")[0] != planted
    assert (await post(served, TOKEN, planted)).status_code == 401
    assert await log_in(served) != await log_in(served)


async def test_a_logout_ends_the_session_and_its_bearer_tokens(served: Served) -> None:
    cookie, other = await log_in(served), await log_in(served)
    tokens = [await bearer(served, cookie) for _ in range(2)]
    kept = await bearer(served, other)
    answer = await served.http.delete(LOGIN, headers={**OWN, "cookie": cookie})
    assert answer.status_code == 204 and "Max-Age=0" in answer.headers["set-cookie"]
    assert [await reads(served, one) for one in tokens] == [401, 401]
    assert (await post(served, TOKEN, cookie)).status_code == 401
    assert await reads(served, kept) == 200


async def test_a_session_ends_with_its_user_and_with_another_password(served: Served) -> None:
    cookie = await log_in(served)
    token = await bearer(served, cookie)
    await served.users.set_password("alice", "another password")
    assert await reads(served, token) == 401
    assert (await post(served, TOKEN, cookie)).status_code == 401
    cookie = await log_in(served, basic("alice", "another password"))
    token = await bearer(served, cookie)
    await served.users.delete("alice")
    assert await reads(served, token) == 401
    served.clock.advance(1)
    await served.users.create("alice", "another password")
    assert await reads(served, token) == 401
    assert (await post(served, TOKEN, cookie)).status_code == 401


async def test_a_stream_of_the_page_ends_with_its_user(served: Served) -> None:
    await served.app.server.broker.topics.create("t")
    token = await bearer(served, await log_in(served))
    stream = await waiting(served, f"Bearer {token}", stream=True)
    await served.users.delete("alice")
    assert await ends(stream)


async def test_a_stream_of_the_page_ends_with_the_password_of_its_session(served: Served) -> None:
    await served.app.server.broker.topics.create("t")
    by_token = f"Bearer {await served.token('alice')}"
    streams = [
        await waiting(served, f"Bearer {await bearer(served, await log_in(served, *login))}", stream=True)
        for login in ((), (by_token,))
    ]
    await served.users.set_password("alice", "another password")
    assert await ends(streams[0])
    assert not streams[1].done()
    await served.users.delete("alice")
    assert await ends(streams[1])


async def test_a_session_of_a_token_ends_with_the_token(served: Served) -> None:
    text = await served.token("alice", 60_000)
    cookie = await log_in(served, f"Bearer {text}")
    token = await bearer(served, cookie)
    assert await reads(served, token) == 200
    served.clock.advance(60)
    assert await reads(served, token) == 401
    text = await served.token("alice")
    token = await bearer(served, await log_in(served, basic("alice", text)))
    await served.app.server.broker.tokens.delete(text.split("_")[1])
    assert await reads(served, token) == 401


async def test_a_session_and_its_tickets_have_the_scope_of_the_token(served: Served) -> None:
    await served.app.server.broker.topics.create("t")
    await served.app.server.broker.topics.create("u")
    rule = ScopeRule(Operation.READ, ResourceType.TOPIC, PatternType.LITERAL, "t")
    _, text = await served.app.server.broker.tokens.create("alice", "", None, scope=(rule,))
    token = await bearer(served, await log_in(served, f"Bearer {text}"))
    headers = {"authorization": f"Bearer {token}"}
    for topic, status in (("t", 200), ("u", 403)):
        path = f"/api/v1/topics/{topic}/records"
        read = await served.http.get(path, params={"wait_ms": 0}, headers=headers)
        assert read.status_code == status, topic
        made = await served.http.post("/api/v1/stream-tickets", json={"path": path}, headers=headers)
        query = {"ticket": made.json()["ticket"], "wait_ms": "0"}
        assert (await served.http.get(path, params=query)).status_code == status, topic


async def test_a_bearer_token_of_the_console_opens_no_session(served: Served) -> None:
    token = await bearer(served, await log_in(served))
    assert (await post(served, LOGIN, authorization=f"Bearer {token}")).status_code == 401


async def test_times_end_bearer_tokens_and_sessions(served: Served) -> None:
    cookie = await log_in(served)
    token = await bearer(served, cookie)
    served.clock.advance(BEARER_SECONDS)
    assert await reads(served, token) == 401
    served.clock.advance(IDLE_SECONDS - BEARER_SECONDS - 1)
    await bearer(served, cookie)
    served.clock.advance(IDLE_SECONDS)
    assert (await post(served, TOKEN, cookie)).status_code == 401
    cookie = await log_in(served)
    for _ in range(MAX_SECONDS // (IDLE_SECONDS - 1)):
        served.clock.advance(IDLE_SECONDS - 1)
        token = await bearer(served, cookie)
    served.clock.advance(BEARER_SECONDS - 1)
    assert await reads(served, token) == 401, "the session has reached its limit, its token has not"
    assert (await post(served, TOKEN, cookie)).status_code == 401


async def test_sessions_and_their_tokens_are_bounded(served: Served) -> None:
    first, *_, last = [await log_in(served) for _ in range(MAX_SESSIONS_PER_USER + 1)]
    assert len(served.app.shared.sessions) == MAX_SESSIONS_PER_USER
    assert (await post(served, TOKEN, first)).status_code == 401
    tokens = [await bearer(served, last) for _ in range(MAX_BEARERS + 1)]
    assert [await reads(served, one) for one in (tokens[0], tokens[1], tokens[-1])] == [401, 200, 200]


async def test_all_sessions_together_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.security.sessions.MAX_SESSIONS", 3)
    sessions = served.app.shared.sessions
    ids = [sessions.open(Identity(Principal(name=name))) for name in "abcd"]
    assert len(sessions) == 3
    assert sessions.bearer(ids[0]) is None and sessions.bearer(ids[3]) is not None


async def test_without_authentication_the_page_needs_no_login(tmp_path: Path) -> None:
    served = Served(tmp_path / "open", "")
    async with served.app.lifespan():
        answer = await post(served, TOKEN)
        assert answer.status_code == 200 and answer.json()["token"] is None
        assert (await post(served, LOGIN, authorization=basic("a", "b"))).status_code == 422
        await served.http.aclose()
