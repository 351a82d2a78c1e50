"""app.http.authentication over a whole application: what lets a client in, what a refusal says, what is open."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from app.main import Application, create_app
from core.clock import ManualClock
from core.config import Config, Endpoint, JwtIssuer, OidcClient
from core.vocabulary.users import UserInfo
from tests.issuer import Issuer, bad_tokens

PASSWORD = "canary-of-a-password"
PORT = 8082


class Served:
    """An application whose one HTTP listener asks for `ways`, and a client of it."""

    def __init__(
        self, data_dir: Path, ways: str, oauth: tuple[JwtIssuer, ...] = (), oidc: OidcClient | None = None
    ) -> None:
        self.clock = ManualClock()
        config = Config(
            data_dir=data_dir,
            listeners=(),
            scram_iterations=4096,
            failed_authentication_delay_ms=0,
            super_users=("User:alice", "User:bob"),
            oauth=oauth,
            console_oidc=oidc,
        )
        endpoint = Endpoint("http", "127.0.0.1", PORT, (("auth", ways),) if ways else ())
        self.app: Application = create_app(config, self.clock, http_endpoints=[endpoint])
        self.users = self.app.server.broker.users
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}")

    async def get(self, path: str = "/api/v1/topics", **headers: str) -> httpx.Response:
        return await self.http.get(path, headers=headers)

    async def token(self, owner: str, ttl_ms: int | None = None) -> str:
        return (await self.app.server.broker.tokens.create(owner, "", ttl_ms))[1]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
async def served(request: Any, tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", getattr(request, "param", "basic,token"))
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        yield made
        await made.http.aclose()


async def test_a_password_and_a_token_let_in(served: Served) -> None:
    token = await served.token("alice")
    assert (await served.get(authorization=basic("alice", PASSWORD))).status_code == 200
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 200
    assert (await served.get(authorization=f"bearer {token}")).status_code == 200
    assert (await served.get(authorization=basic("alice", token))).status_code == 200


async def test_a_request_without_credentials_is_refused(served: Served) -> None:
    token = await served.token("alice")
    wrong = [
        "", "Basic", "Basic !!!", basic("alice", "wrong"), basic("bob", PASSWORD), basic("bob", token),
        "Basic " + base64.b64encode(b"alice").decode(), "Basic " + base64.b64encode(b"\xff:a").decode(),
        "Bearer", f"Bearer {token[:-1]}", f"Bearer {PASSWORD}", f"Digest {token}", token,
    ]  # fmt: skip
    details = set()
    for header in wrong:
        answer = await served.get(authorization=header)
        assert answer.status_code == 401, header
        document = msgspec.json.decode(answer.content)
        assert document["type"] == "/problems/unauthenticated" and not document["retriable"]
        challenge = answer.headers["www-authenticate"]
        assert 'Bearer realm="sluice", error="invalid_token"' in challenge
        assert 'Basic realm="sluice", charset="UTF-8"' in challenge
        assert PASSWORD not in answer.text and token not in answer.text
        details.add(document["detail"])
    assert len(details) == 1, "a refusal does not say what was wrong"
    bare = await served.get()
    assert bare.status_code == 401 and "error=" not in bare.headers["www-authenticate"]


async def test_a_page_of_a_browser_is_not_asked_by_a_dialog(served: Served) -> None:
    answer = await served.get(**{"sec-fetch-site": "same-origin"})
    assert answer.status_code == 401 and "Basic" not in answer.headers["www-authenticate"]


async def test_a_refusal_does_not_say_what_there_is(served: Served) -> None:
    await served.app.server.broker.topics.create("there")
    there, nowhere = [await served.get(f"/api/v1/topics/{name}") for name in ("there", "nowhere")]
    assert there.status_code == nowhere.status_code == 401
    assert there.text.replace("there", "nowhere") == nowhere.text


async def test_probes_and_pages_are_open_and_nothing_else(served: Served) -> None:
    for path in ("/livez", "/livez/", "/readyz", "/problems/not-found"):
        assert (await served.get(path)).status_code == 200, path
    closed = [
        "/metrics", "/openapi.json", "/api/v1", "/api/v1/users", "/topics", "/nothing", "/consoles", "//livez",
        "/livez%2f..%2fmetrics",
    ]  # fmt: skip
    for path in closed:
        assert (await _at(served, path)).status_code == 401, path
    # What is below an open prefix is looked for among the files there, and nowhere else.
    for path in ("/docs/../api/v1/topics", "/docs/%2e%2e/api/v1/topics"):
        assert (await _at(served, path)).status_code in (401, 404), path


async def _at(served: Served, path: str) -> httpx.Response:
    """Send a path as it is."""
    request = served.http.build_request("GET", f"http://127.0.0.1:{PORT}/")
    request.url = request.url.copy_with(raw_path=path.encode())
    return await served.http.send(request)


async def test_rest_proxy_v2_refuses_in_its_own_words(served: Served) -> None:
    answer = await served.get("/topics")
    assert answer.status_code == 401 and answer.json()["error_code"] == 40101
    assert (await served.get("/topics", authorization=basic("alice", PASSWORD))).json() == []


async def test_a_token_ends_with_its_time_and_when_it_is_deleted(served: Served) -> None:
    token = await served.token("alice", 1000)
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 200
    served.clock.advance(1)
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 401
    token = await served.token("alice")
    await served.users.delete("alice")
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 401
    assert (await served.get(authorization=basic("alice", PASSWORD))).status_code == 401


@pytest.mark.parametrize("served", ["token"], indirect=True)
async def test_a_listener_for_tokens_takes_no_passwords(served: Served) -> None:
    token = await served.token("alice")
    refused = await served.get(authorization=basic("alice", PASSWORD))
    assert refused.status_code == 401 and "Basic" not in refused.headers["www-authenticate"]
    assert (await served.get(authorization=basic("alice", token))).status_code == 200
    assert (await served.get(authorization=basic("bob", token))).status_code == 401


@pytest.mark.parametrize("served", ["token"], indirect=True)
async def test_a_listener_for_tokens_takes_no_password_that_another_listener_has_taken(
    served: Served,
) -> None:
    assert await served.app.server.broker.passwords.check("alice", PASSWORD, "127.0.0.1")
    assert (await served.get(authorization=basic("alice", PASSWORD))).status_code == 401


@pytest.mark.parametrize("served", ["basic"], indirect=True)
async def test_a_listener_for_passwords_takes_no_bearer(served: Served) -> None:
    token = await served.token("alice")
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 401
    assert (await served.get(authorization=basic("alice", PASSWORD))).status_code == 200


@pytest.mark.parametrize("served", [""], indirect=True)
async def test_a_listener_without_authentication_takes_all(served: Served) -> None:
    assert (await served.get()).status_code == 200
    assert (await served.get(authorization=basic("alice", "wrong"))).status_code == 200


async def test_idempotency_keys_are_those_of_the_user(served: Served) -> None:
    await served.users.create("bob", PASSWORD)
    answers = []
    for user in ("alice", "alice", "bob"):
        answer = await served.http.post(
            "/api/v1/topics/t/records",
            json={"records": [{"value": "a"}]},
            headers={"authorization": basic(user, PASSWORD), "idempotency-key": "k"},
        )
        answers.append(answer.json()["records"][0]["offset"])
    assert answers == [0, 0, 1]


# --- administration -------------------------------------------------------------------------------------------


async def ask(
    served: Served, method: str, path: str, body: object = None, user: str = "alice"
) -> httpx.Response:
    return await served.http.request(
        method, f"/api/v1{path}", json=body, headers={"authorization": basic(user, PASSWORD)}
    )


async def test_users_are_made_listed_changed_and_deleted(served: Served) -> None:
    made = await ask(served, "POST", "/users", {"name": "bob", "password": PASSWORD})
    assert made.status_code == 201 and made.headers["location"] == "/api/v1/users/bob"
    assert [one["mechanism"] for one in made.json()["credentials"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [one["name"] for one in (await ask(served, "GET", "/users")).json()["items"]] == ["alice", "bob"]
    assert (await ask(served, "POST", "/users", {"name": "bob", "password": PASSWORD})).status_code == 409
    changed = await ask(served, "PUT", "/users/bob/password", {"password": "another password"})
    assert changed.status_code == 200
    assert (await ask(served, "GET", "/users", user="bob")).status_code == 401
    assert (await ask(served, "DELETE", "/users/bob")).status_code == 204
    assert (await ask(served, "GET", "/users/bob")).status_code == 404
    for body in ({"name": "a/b", "password": PASSWORD}, {"name": "c", "password": "short"}):
        assert (await ask(served, "POST", "/users", body)).status_code == 422


async def test_a_refusal_does_not_repeat_a_password(served: Served) -> None:
    bodies: list[object] = [
        {"name": "bob", "password": [PASSWORD]},
        {"name": "bob", "passwort": PASSWORD},
        {"name": "bob", "password": "\n" + PASSWORD},
        [PASSWORD],
    ]
    for body in bodies:
        answer = await ask(served, "POST", "/users", body)
        assert answer.status_code == 422 and PASSWORD not in answer.text


async def test_a_token_is_shown_once(served: Served) -> None:
    made = await ask(served, "POST", "/tokens", {"description": "sensor", "ttl_seconds": 60})
    assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
    token = made.json()["token"]
    assert made.json()["owner"] == "alice"
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 200
    listed = await ask(served, "GET", "/tokens")
    assert token[17:] not in listed.text and listed.json()["items"][0]["description"] == "sensor"
    assert (await ask(served, "GET", "/tokens?owner=bob")).json()["items"] == []
    assert (await ask(served, "DELETE", f"/tokens/{made.json()['id']}")).status_code == 204
    assert (await served.get(authorization=f"Bearer {token}")).status_code == 401
    forever = await ask(served, "POST", "/tokens", {"never_expires": True})
    assert forever.json()["expires"] is None
    both = await ask(served, "POST", "/tokens", {"never_expires": True, "ttl_seconds": 1})
    assert both.status_code == 422
    assert (await ask(served, "POST", "/tokens", {"owner": "nobody"})).status_code == 404


# --- the first user -------------------------------------------------------------------------------------------


async def test_the_setup_token_makes_one_user_and_does_nothing_else(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", "basic,token")
    async with served.app.lifespan():
        token = served.app.setup.issue()
        headers = {"authorization": f"Bearer {token}"}
        for method, path in (
            ("GET", "/api/v1/users"),
            ("POST", "/api/v1/topics/t/records"),
            ("GET", "/metrics"),
        ):
            assert (await served.http.request(method, path, headers=headers)).status_code == 401
        first = {"name": "root", "password": PASSWORD}
        short = await served.http.post("/api/v1/users", json={**first, "password": "short"}, headers=headers)
        assert short.status_code == 422
        no_password = await served.http.post("/api/v1/users", json={"name": "root"}, headers=headers)
        assert no_password.status_code == 422
        assert (await served.http.post("/api/v1/users", json=first, headers=headers)).status_code == 201
        again = {"name": "other", "password": PASSWORD}
        assert (await served.http.post("/api/v1/users", json=again, headers=headers)).status_code == 401
        assert [one.name for one in served.users.all()] == ["root"]
        assert (await served.get(authorization=basic("root", PASSWORD))).status_code == 200
        await served.http.aclose()


async def test_one_of_three_claims_of_the_setup_token_at_once_gets_it(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", "token")
    async with served.app.lifespan():
        headers = {"authorization": f"Bearer {served.app.setup.issue()}"}
        posts = [
            served.http.post("/api/v1/users", json={"name": name, "password": PASSWORD}, headers=headers)
            for name in ("one", "two", "three")
        ]
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*posts))
        assert statuses == [201, 401, 401] and len(served.users.all()) == 1
        await served.http.aclose()


async def test_the_setup_token_ends_after_a_quarter_of_an_hour(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", "token")
    async with served.app.lifespan():
        token = served.app.setup.issue()
        assert served.app.setup.fits(token) and not served.app.setup.fits(token + "x")
        served.clock.advance(15 * 60)
        assert not served.app.setup.fits(token)
        assert served.users.all() == list[UserInfo]()
        await served.http.aclose()


# --- access tokens of other issuers -------------------------------------------------------------------------------


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    # The clock of `Served`, which stands still.
    async with Issuer(lambda: ManualClock().wall_ms() / 1000).served() as made:
        yield made


@pytest.fixture
async def with_issuer(issuer: Issuer, tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "token,jwt", (issuer.settings,))
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        yield made
        await made.http.aclose()


async def test_an_access_token_of_an_issuer_lets_in(with_issuer: Served, issuer: Issuer) -> None:
    assert (await with_issuer.get(authorization=f"Bearer {issuer.mint()}")).status_code == 200
    own = await with_issuer.token("alice")
    assert (await with_issuer.get(authorization=f"Bearer {own}")).status_code == 200
    # A name of an issuer has the rights of that name, and needs no user of the broker.
    await with_issuer.app.server.broker.topics.create("secret")
    answer = await with_issuer.get(
        "/api/v1/topics/secret", authorization=f"Bearer {issuer.mint(sub='carol')}"
    )
    assert answer.status_code == 403


async def test_bad_access_tokens_are_refused(with_issuer: Served, issuer: Issuer) -> None:
    details = set()
    for name, token in bad_tokens(issuer).items():
        answer = await with_issuer.get(authorization=f"Bearer {token}")
        assert answer.status_code == 401, name
        assert answer.headers["www-authenticate"] == 'Bearer realm="sluice", error="invalid_token"'
        details.add(answer.text)
    assert len(details) == 1
    assert (await with_issuer.get()).headers["www-authenticate"] == 'Bearer realm="sluice"'


async def test_a_listener_takes_no_access_tokens_unless_it_says_so(tmp_path: Path, issuer: Issuer) -> None:
    made = Served(tmp_path / "data", "basic,token", (issuer.settings,))
    async with made.app.lifespan():
        assert (await made.get(authorization=f"Bearer {issuer.mint()}")).status_code == 401
        assert issuer.asked == []
        await made.http.aclose()


# --- scopes of tokens ---------------------------------------------------------------------------------------------


async def scoped(served: Served, *rules: dict[str, str]) -> str:
    """A token of alice, a super user, that may be used for a few things."""
    made = await served.http.post(
        "/api/v1/tokens",
        json={"owner": "alice", "scope": list(rules)},
        headers={"authorization": basic("alice", PASSWORD)},
    )
    assert made.status_code == 201, made.text
    return f"Bearer {made.json()['token']}"


READ_ORDERS = {"operation": "READ", "resource_name": "orders-", "pattern_type": "PREFIXED"}


async def test_a_token_may_do_what_its_scope_lists(served: Served) -> None:
    for name in ("orders-1", "secret"):
        await served.app.server.broker.topics.create(name)
    token = await scoped(served, READ_ORDERS)
    for path in ("/api/v1/topics/orders-1", "/api/v1/topics/orders-1/partitions/0/records?offset=0"):
        assert (await served.get(path, authorization=token)).status_code == 200, path
    seen = (await served.get("/api/v1/topics", authorization=token)).json()["items"]
    assert [topic["name"] for topic in seen] == ["orders-1"]
    # v2 and Basic are no other ways in.
    assert (await served.get("/topics", authorization=token)).json() == ["orders-1"]
    as_password = basic("alice", token.removeprefix("Bearer "))
    assert (await served.get("/api/v1/topics/secret", authorization=as_password)).status_code == 403


async def test_what_a_scope_leaves_out_is_403_and_says_so(served: Served) -> None:
    await served.app.server.broker.topics.create("orders-1")
    token = await scoped(served, READ_ORDERS)
    asked = [
        ("GET", "/api/v1/topics/secret", None),
        ("POST", "/api/v1/topics/orders-1/records", {"records": [{"value": "x"}]}),
        ("DELETE", "/api/v1/topics/orders-1", None),
        ("POST", "/api/v1/users", {"name": "carol", "password": PASSWORD}),
        # Of its owner alone: with these a token could widen itself.
        ("PUT", "/api/v1/users/alice/password", {"password": PASSWORD}),
        ("POST", "/api/v1/tokens", {"owner": "alice"}),
    ]
    for method, path, body in asked:
        answer = await served.http.request(method, path, json=body, headers={"authorization": token})
        assert answer.status_code == 403, (method, path, answer.text)
        assert answer.headers["www-authenticate"] == 'Bearer realm="sluice", error="insufficient_scope"'
    everything = await scoped(
        served, {"operation": "ALL", "resource_name": "*"}, {"operation": "ALL", "resource_type": "CLUSTER"}
    )
    assert (
        await served.http.post("/api/v1/tokens", json={}, headers={"authorization": everything})
    ).status_code == 201
    own = await served.get("/api/v1/tokens", authorization=basic("alice", PASSWORD))
    wanted = {
        "resource_type": "TOPIC",
        "resource_name": "orders-",
        "pattern_type": "PREFIXED",
        "operation": "READ",
    }
    assert [one["scope"] for one in own.json()["items"] if one["scope"] and len(one["scope"]) == 1] == [
        [wanted]
    ]


async def test_a_refusal_for_want_of_a_right_does_not_name_the_scope(served: Served) -> None:
    await served.users.create("dave", PASSWORD)
    answer = await served.get("/api/v1/topics/secret", authorization=basic("dave", PASSWORD))
    assert answer.status_code == 403 and "www-authenticate" not in answer.headers


@pytest.mark.parametrize(
    "scope",
    [
        [],
        [{}],
        [{"operation": "ANY", "resource_name": "a"}],
        [{"operation": "READ"}],
        [{**READ_ORDERS, "host": "*"}],
        "READ",
    ],
)
async def test_a_scope_that_cannot_be_is_refused(served: Served, scope: Any) -> None:
    body = {"owner": "alice", "scope": scope}
    answer = await served.http.post(
        "/api/v1/tokens", json=body, headers={"authorization": basic("alice", PASSWORD)}
    )
    assert answer.status_code in (400, 422), answer.text
    assert served.app.server.broker.tokens.all() == []
