"""A client without rights gets the same bytes for what exists and for what does not: each API, version and route."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from core.listeners.kafka.dispatch import HANDLERS
from core.protocol.apis import APIS
from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.traits import produce_magic
from core.vocabulary.groups import Commit, CommitRequest
from tests.broker_process import ROOT
from tests.core.listeners.kafka.conftest import produce_request
from tests.core.listeners.kafka.test_every_version import CASES, ID, records_of

from .conftest import ADMIN, World

HERE, GONE = "here", "gone"  # of the same length, so that answers that contain them are as well
# Kafka tells a client that a topic id is unknown. Ids are random, and no list shows them to a client without rights.
BY_ID = {(0, 13), (1, 13), (1, 14), (1, 15), (1, 16), (1, 17), (1, 18)}
SASL = {17, 36}
V2 = "application/vnd.kafka.v2+json"


def renamed(value: Any, name: str) -> Any:
    """The fields of a request of CASES with another name for its topic, groups and user."""
    if isinstance(value, dict):
        return {key: renamed(one, name) for key, one in value.items() if one != ID}
    if isinstance(value, list):
        return [renamed(one, name) for one in value]
    return name if value in ("t", "g", "j", "a") else value


async def furnished(world: World) -> None:
    """What HERE names: a topic, a group with a position and a consumer, a user; and a client without rights."""
    await world.add("mallory")
    await world.add(HERE)
    await world.broker.topics.create(HERE)
    await world.broker.groups.commit(HERE, CommitRequest([Commit(HERE, 0, 1)]))
    made = await world.http(ADMIN, "POST", f"/consumers/{HERE}", {"name": HERE}, **{"content-type": V2})
    assert made.status_code == 200, made.text


async def test_each_version_of_each_api_answers_the_same(world: World) -> None:
    await furnished(world)
    for key in sorted(HANDLERS.keys() - SASL):
        low, high = HANDLERS[key].versions
        for version in range(low, high + 1):
            if (key, version) in BY_ID:
                continue
            answers = []
            for name in (HERE, GONE):
                client = await world.kafka("mallory")
                header = encode_request_header(key, version, 1, "c")
                answer = await client.raw(header + encode_request(key, version, request(key, version, name)))
                answers.append((answer or b"").replace(GONE.encode(), HERE.encode()))
            assert answers[0] == answers[1], (APIS[key].name, version)


def request(key: int, version: int, name: str) -> Any:
    """A request about a topic, a group and a user of that name."""
    if key == 0:
        return produce_request(name, records_of(produce_magic(version)))
    return msgspec.convert(renamed(CASES[key][0], name), APIS[key].request_type)


# The id of a transaction of several requests is a secret, and belongs to its principal: all others are told 404.
BY_SECRET = {"commitLongTransaction", "abortLongTransaction", "extendTransaction"}
# Bodies that are accepted, where `{}` is not.
_ONE = {"records": [{"value": "dg=="}]}
BODIES: dict[str, Any] = {
    "takeOverGroup": {"topic": "{name}", "generation_id": 1},
    "createConsumer": {"topics": ["{name}"]},
    "ackConsumer": {"ack": "a"},
    "seekConsumer": {"at": "earliest"},
    "joinGroup": {"topics": ["{name}"]},
    "heartbeat": {"generation_id": 1},
    "syncGroup": {"generation_id": 1},
    "setGroupOffsets": {"offsets": [{"topic": "{name}", "partition": 0, "next_offset": 1}]},
    "resetGroupOffsets": {"to": "earliest"},
    "setPartitionRole": {"role": "leader"},
    "putQueue": {"topics": ["{name}"]},
    "putWebhook": {"url": "https://example.org/"},
    "seekQueue": {"start": "earliest"},
    "settleRecords": {"accept": ["7f"]},
    "truncateTopic": {"partitions": [{"partition": 0, "before_offset": 0}]},
    "setUserPassword": {"password": "another password"},
    "proxyProduce": _ONE,
    "proxyProduceToPartition": _ONE,
}


def operations() -> list[tuple[str, str, str]]:
    """Each operation of the OpenAPI document whose path names something: method, path, operation id."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    return [
        (method.upper(), path, found[method]["operationId"])
        for path, found in document["paths"].items()
        for method in found
        if "{" in path and "{slug}" not in path and method != "parameters"
    ]


async def test_each_route_answers_the_same_403(world: World) -> None:
    await furnished(world)
    others = {}
    for method, path, operation in operations():
        answers = []
        for name in (HERE, GONE):
            target = path.replace("{partition}", "0").replace("{offset}", "0")
            target = re.sub(r"\{\w+\}", name, target)
            body = json.dumps(BODIES.get(operation, {})).replace("{name}", name).encode()
            kind = V2 if path.startswith(("/topics", "/consumers")) else "application/json"
            if operation == "changeTopic":
                kind = "application/merge-patch+json"
            answer = await world.http("mallory", method, target, body, **{"content-type": kind})
            answers.append((answer.status_code, answer.text.replace(GONE, HERE), answer.headers))
        assert answers[0] == answers[1], operation
        if answers[0][0] != (404 if operation in BY_SECRET else 403):
            others[operation] = answers[0]
    assert others == {}
