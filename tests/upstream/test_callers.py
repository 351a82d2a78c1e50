"""A gateway that calls the cluster as its callers: the cluster checks passwords and rights; callers share nothing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import load
from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config, Endpoint, Upstream
from core.errors import StartupError
from core.records.record import NewRecord
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.app.native.streams.asgi_stream import streaming
from tests.core.client.conftest import Served
from tests.issuer import Issuer
from tests.upstream.cluster import Cluster
from tests.upstream.faults import METADATA
from tests.upstream.gateway import Gateway, client_of
from tests.upstream.running import stored, with_gateway

T = "/api/v1/topics/{}/records"
PASSWORDS = {"alice": "alice's password", "bob": "bob's password"}
ALL = "*"


def basic(user: str, password: str | None = None) -> dict[str, str]:
    pair = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def allow(user: str, operation: Operation, name: str, kind: ResourceType = ResourceType.TOPIC) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, f"User:{user}", ALL, operation, Permission.ALLOW)


def over_callers(
    tmp_path: Path,
    scenario: Callable[[Cluster, Gateway], Awaitable[None]],
    *,
    mechanism: str = "PLAIN",
    gateway: dict[str, Any] | None = None,
) -> None:
    """Run a scenario: alice may do everything with `hers`, bob with `his`; both may read `shared`."""

    async def prepared(cluster: Cluster, made: Gateway) -> None:
        for user, password in PASSWORDS.items():
            await cluster.broker.users.create(user, password)
        for topic in ("hers", "his", "shared"):
            await cluster.broker.topics.create(topic, partitions=1)
            await cluster.broker.records.produce(topic, [NewRecord(value=f"in {topic}".encode())])
        group = ResourceType.GROUP
        rules = [
            *(allow("alice", one, "hers") for one in (Operation.READ, Operation.WRITE)),
            *(allow("bob", one, "his") for one in (Operation.READ, Operation.WRITE)),
            allow("alice", Operation.READ, "shared"),
            allow("bob", Operation.READ, "shared"),
            allow("alice", Operation.READ, "hers", group),
        ]
        assert not any(await cluster.broker.acls.create(rules))
        await scenario(cluster, made)

    async def whole(cluster: Cluster, made: Gateway) -> None:
        await prepared(cluster, made)

    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "gateway",
        "sasl.password": "the gateway's own",
    }
    listener = Endpoint("http", "127.0.0.1", 8082, (("auth", "basic"),))
    with_gateway(
        tmp_path,
        whole,
        gateway={"properties": properties, "identity": "caller", "listeners": (listener,), **(gateway or {})},
        users={"gateway": "the gateway's own"},
        options=(("auth", "plain,scram-sha-256,scram-sha-512"),),
        settings={"super_users": ("User:gateway",)},
    )


async def get(gateway: Gateway, topic: str, headers: dict[str, str], **params: Any) -> httpx.Response:
    path = f"/api/v1/topics/{topic}/partitions/0/records"
    return await gateway.http.get(path, params={"offset": 0, **params}, headers=headers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_caller_has_its_own_rights(tmp_path: Path, mechanism: str) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        for user, own, other in (("alice", "hers", "his"), ("bob", "his", "hers")):
            answer = await gateway.http.post(T.format(own), json={"value": user}, headers=basic(user))
            assert answer.status_code == 200, answer.text
            answer = await gateway.http.post(T.format(other), json={"value": user}, headers=basic(user))
            assert answer.status_code == 403, answer.text
            assert (await get(gateway, own, basic(user))).json()["records"][1]["value"] == user
            assert (await get(gateway, other, basic(user))).status_code == 403
            assert (await get(gateway, "shared", basic(user))).status_code == 200
            names = (await gateway.http.get("/api/v1/topics", headers=basic(user))).json()["items"]
            assert sorted(one["name"] for one in names) == sorted([own, "shared"])
            answer = await gateway.http.get(T.format(other), headers=basic(user))
            assert answer.status_code == 403, answer.text
        assert [value for _, value in await stored(cluster, "hers")] == ["in hers", "alice"]

    over_callers(tmp_path, scenario, mechanism=mechanism)


def test_a_wrong_password_is_401_and_never_that_of_an_open_connection(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        assert (await get(gateway, "hers", basic("alice"))).status_code == 200
        for headers in ({}, basic("alice", "wrong"), basic("alice", ""), basic("bob", PASSWORDS["alice"])):
            answer = await get(gateway, "hers", headers)
            assert answer.status_code == 401, answer.text
            assert "www-authenticate" in answer.headers
        # The gateway's own name is one like others.
        assert (await get(gateway, "hers", basic("gateway", "wrong"))).status_code == 401
        assert (await get(gateway, "hers", basic("alice"))).status_code == 200

    over_callers(tmp_path, scenario)


def test_wrong_passwords_do_not_reach_the_cluster_without_a_limit(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        before = len(cluster.dials)
        codes = [(await get(gateway, "hers", basic("alice", "wrong"))).status_code for _ in range(10)]
        assert set(codes) == {401}
        assert len(cluster.dials) == before + 1
        many = await asyncio.gather(*(get(gateway, "hers", basic("alice", f"guess {n}")) for n in range(60)))
        assert {answer.status_code for answer in many} == {401, 429}
        assert len(cluster.dials) < before + 50

    over_callers(tmp_path, scenario)


def test_streams_and_long_polls_of_two_callers_share_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        path = T.format("hers")
        async with (
            streaming(gateway.app, path, "from=earliest", **basic("alice")) as stream,
            streaming(gateway.app, path, "from=earliest", **basic("bob")) as refused,
        ):
            assert [one["value"] for one in await stream.records(1)] == ["in hers"]
            assert refused.status == 403
            waiting = asyncio.ensure_future(get(gateway, "hers", basic("alice"), offset=1, wait_ms=20_000))
            assert (await get(gateway, "hers", basic("bob"), offset=1, wait_ms=20_000)).status_code == 403
            await cluster.broker.records.produce("hers", [NewRecord(value=b"late")])
            assert [one["value"] for one in (await waiting).json()["records"]] == ["late"]
            assert [one["value"] for one in await stream.records(1)] == ["late"]
        # Also of a topic that both may read: each has a connection of its own.
        assert len(gateway.broker.callers) == 2

    over_callers(tmp_path, scenario)


def test_a_session_of_the_console_and_a_ticket_have_the_rights_of_their_caller(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        http = gateway.http
        page = {"origin": "http://127.0.0.1:8082"}
        answer = await http.post("/console/session", headers={**page, **basic("alice")})
        assert answer.status_code == 204, answer.text
        token = (await http.post("/console/session/token", headers=page)).json()["token"]
        bearer = {"authorization": f"Bearer {token}"}
        assert (await get(gateway, "hers", bearer)).status_code == 200
        assert (await get(gateway, "his", bearer)).status_code == 403
        made = await http.post("/api/v1/stream-tickets", json={"path": T.format("hers")}, headers=bearer)
        ticket = made.json()["ticket"]
        async with streaming(gateway.app, T.format("hers"), f"from=earliest&ticket={ticket}") as stream:
            assert [one["value"] for one in await stream.records(1)] == ["in hers"]
        # It ends with the connections of its caller.
        await asyncio.sleep(400)
        assert (await get(gateway, "hers", bearer)).status_code == 401

    over_callers(tmp_path, scenario)


def test_a_right_that_is_taken_away_ends_with_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        answer = await gateway.http.post(T.format("hers"), json={"value": "a"}, headers=basic("alice"))
        assert answer.status_code == 200
        deny = Acl(
            ResourceType.TOPIC, "hers", PatternType.LITERAL, "User:alice", ALL, Operation.WRITE, Permission.DENY
        )  # fmt: skip
        await cluster.broker.acls.create([deny])
        answer = await gateway.http.post(T.format("hers"), json={"value": "b"}, headers=basic("alice"))
        assert answer.status_code == 403, answer.text

    over_callers(tmp_path, scenario)


def test_a_changed_password_ends_streams_and_requests_within_two_minutes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        # The request is cancelled, so that its connection is closed without an end of the answer.
        with pytest.raises(asyncio.CancelledError):
            async with streaming(gateway.app, T.format("hers"), "from=earliest", **basic("alice")) as stream:
                await stream.records(1)
                await cluster.broker.users.set_password("alice", "another password")
                await asyncio.sleep(120)
                assert len(gateway.broker.callers) == 0
        assert (await get(gateway, "hers", basic("alice"))).status_code == 401
        assert (await get(gateway, "hers", basic("alice", "another password"))).status_code == 200

    over_callers(tmp_path, scenario)


def test_the_connections_of_idle_callers_are_closed_and_their_number_is_bounded(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        callers = gateway.broker.callers
        assert (await get(gateway, "hers", basic("alice"))).status_code == 200
        await asyncio.sleep(1)
        assert (await get(gateway, "his", basic("bob"))).status_code == 200
        # One may be open: that of alice was not used for the longest time.
        assert len(callers) == 1
        async with streaming(gateway.app, T.format("his"), "from=earliest", **basic("bob")) as stream:
            await stream.records(1)
            answer = await get(gateway, "hers", basic("alice"))
            assert answer.status_code == 429, answer.text
            assert "SLUICE_UPSTREAM_MAX_CALLERS" in answer.text
            await asyncio.sleep(400)
            assert len(callers) == 1
        await asyncio.sleep(400)
        assert len(callers) == 0
        open_links = sum(len(node.connections) for node in cluster.nodes.values())
        assert open_links <= 2
        assert (await get(gateway, "hers", basic("alice"))).status_code == 200

    over_callers(tmp_path, scenario, gateway={"upstream_max_callers": 1})


def test_what_outlives_a_request_is_501_and_announced(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        http, who = gateway.http, basic("alice")
        root = (await http.get("/api/v1/", headers=who)).json()
        assert set(root["capabilities"]) == {"topics", "records", "streams", "groups", "upstream"}
        consumers = "/api/v1/groups/hers/consumers"
        user = {"name": "x", "password": "a long password"}
        calls: list[tuple[str, str, str, dict[str, Any]]] = [
            ("consumers", "POST", consumers, {"json": {"name": "a", "topics": ["hers"]}}),
            ("consumers", "GET", consumers, {}),
            ("group-members", "POST", "/api/v1/groups/hers/members", {"json": {"topics": ["hers"]}}),
            ("consumers", "POST", "/consumers/hers", {"content": b"{}"}),
            ("users", "POST", "/api/v1/users", {"json": user}),
            ("users", "GET", "/api/v1/tokens", {}),
            ("acls", "GET", "/api/v1/acls", {}),
            ("quotas", "GET", "/api/v1/quotas", {}),
            ("transactions", "POST", "/api/v1/transactions", {"json": {"records": []}}),
        ]
        for capability, method, path, how in calls:
            headers = {**who, **how.pop("headers", {})}
            if path.startswith("/consumers"):
                headers["content-type"] = "application/vnd.kafka.v2+json"
            answer = await http.request(method, path, headers=headers, **how)
            assert answer.status_code == 501, (path, answer.text)
            if path.startswith("/api"):
                assert answer.json()["capability"] == capability
        keyed = {**who, "idempotency-key": "k"}
        answer = await http.post(T.format("hers"), json={"value": "a"}, headers=keyed)
        assert (answer.status_code, answer.json()["capability"]) == (501, "idempotency-keys")
        assert [value for _, value in await stored(cluster, "hers")] == ["in hers"]
        # Offsets of groups are those of the caller's rights.
        offsets = {"offsets": [{"topic": "hers", "partition": 0, "next_offset": 1}]}
        answer = await http.patch("/api/v1/groups/hers/offsets", json=offsets, headers=who)
        assert answer.status_code == 200, answer.text
        answer = await http.patch("/api/v1/groups/hers/offsets", json=offsets, headers=basic("bob"))
        assert answer.status_code == 403, answer.text

    over_callers(tmp_path, scenario)


def test_without_credentials_nothing_acts_as_the_gateway(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        for path in ("/livez", "/readyz"):
            assert (await gateway.http.get(path)).status_code == 200
        health = (await gateway.http.get("/healthz")).json()
        assert "cluster" not in health
        for path in ("/api/v1/", "/api/v1/topics", "/api/v1/brokers", "/metrics", "/topics"):
            assert (await gateway.http.get(path)).status_code == 401
        metrics = await gateway.http.get("/metrics", headers=basic("alice"))
        assert metrics.status_code == 200
        assert 'topic="his"' not in metrics.text

    over_callers(tmp_path, scenario)


def test_a_cluster_that_cannot_be_reached_is_no_wrong_password(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        cluster.stop(1)
        answer = await get(gateway, "hers", basic("alice"))
        assert answer.status_code == 503, answer.text
        cluster.start(1)
        cluster.faults.add(METADATA, close_after=True)
        assert (await get(gateway, "hers", basic("alice"))).status_code == 200

    over_callers(tmp_path, scenario)


@pytest.mark.parametrize(
    ("properties", "listener", "environ", "said"),
    [
        ("", "http://127.0.0.1:8082?auth=basic", {}, "clients log in"),
        ("PLAIN", "http://127.0.0.1:8082", {}, "auth=basic"),
        ("PLAIN", "http://127.0.0.1:8082?auth=basic,token", {}, "auth=basic"),
        ("PLAIN", "http://127.0.0.1:8082?auth=basic", {"SLUICE_SUPER_USERS": "User:a"}, "--super-user"),
    ],
)
def test_settings_that_would_bypass_the_cluster_are_refused(
    tmp_path: Path, properties: str, listener: str, environ: dict[str, str], said: str
) -> None:
    file = tmp_path / "client.properties"
    lines = ["bootstrap.servers=b:9092"]
    if properties:
        lines += [f"sasl.mechanism={properties}", "security.protocol=SASL_PLAINTEXT"]
        lines += ["sasl.username=u", "sasl.password=p"]
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    with pytest.raises(StartupError, match=said):
        load(
            environ,
            listeners=[listener],
            upstream_config=str(file),
            upstream_identity="caller",
            insecure_passwords=True,
        )


async def test_access_tokens_are_passed_on(tmp_path: Path) -> None:
    clock = Clock()
    async with Issuer(lambda: clock.wall_ms() / 1000).served() as issuer:
        usual: dict[str, Any] = {
            "oauth": (issuer.settings,), "failed_authentication_delay_ms": 0, "drain_timeout_ms": 10,
        }  # fmt: skip
        (tmp_path / "cluster").mkdir()
        broker = Broker(Config(data_dir=tmp_path / "cluster", super_users=("User:gateway",), **usual), clock)
        await broker.open()
        served = Served(broker, (("auth", "oauthbearer"),))
        await served.start()
        await broker.topics.create("hers", partitions=1)
        await broker.topics.create("his", partitions=1)
        await broker.acls.create([allow("alice", Operation.READ, "hers")])
        token = tmp_path / "token"
        token.write_text(issuer.mint(sub="gateway"))
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
        }
        config = Config(
            data_dir=tmp_path / "gateway",
            listeners=(Endpoint("http", "127.0.0.1", 8082, (("auth", "jwt"),)),),
            upstream=Upstream((str(served.address),), properties, "caller"),
            **usual,
        )
        app = create_app(config, clock)
        async with app.lifespan(), client_of(app) as http:
            alice = {"authorization": f"Bearer {issuer.mint(sub='alice')}"}
            path = "/api/v1/topics/{}/partitions/0/records?offset=0"
            assert (await http.get(path.format("hers"), headers=alice)).status_code == 200
            assert (await http.get(path.format("his"), headers=alice)).status_code == 403
            wrong = {"authorization": f"Bearer {issuer.mint(sub='alice', aud='another')}"}
            for headers in ({}, wrong, basic("alice")):
                assert (await http.get(path.format("hers"), headers=headers)).status_code == 401

            async def first_of(number: int) -> int:
                async with client_of(app, f"10.0.0.{number}") as other:
                    token = {"authorization": f"Bearer {issuer.mint(sub=f'user-{number}')}"}
                    return (await other.get(path.format("hers"), headers=token)).status_code

            # Many that begin at the same time, as after a restart, are no guesser of one address.
            assert set(await asyncio.gather(*(first_of(number) for number in range(20)))) == {403}
        await served.stop()
        await broker.close()
