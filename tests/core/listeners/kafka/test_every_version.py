"""Every version of every API that is advertised gets a proper answer to a request that makes sense in it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from core.broker.broker import Broker
from core.errors import ErrorCode
from core.listeners.kafka.answer_errors import error_codes
from core.listeners.kafka.dispatch import HANDLERS
from core.protocol.apis import APIS
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.traits import produce_magic
from core.records.batch import build_batch
from core.records.message_set import encode_plain
from core.records.record import NewRecord
from core.vocabulary.groups import Commit, CommitRequest

from .conftest import Client, produce_request

# Placeholders for the id of the topic "t", and for the data directory of the broker, in the requests below.
ID, DIRECTORY = "<id>", "<directory>"
JOIN = {"group_id": "j", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": "nobody"}
# A transactional id without a producer.
PRODUCER = {"transactional_id": "x", "producer_id": 1}
ACL = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}

# For each API the fields of a request, and the error code of the answer. A new API needs a line here.
CASES: dict[int, tuple[dict[str, Any], ErrorCode]] = {
    1: (
        {
            "max_bytes": 1000,
            "topics": [{"topic": "t", "topic_id": ID, "partitions": [{"partition_max_bytes": 1000}]}],
        },
        ErrorCode.NONE,
    ),
    2: ({"topics": [{"name": "t", "partitions": [{"timestamp": -2}]}]}, ErrorCode.NONE),
    3: ({"topics": [{"name": "t"}]}, ErrorCode.NONE),
    8: (
        {"group_id": "g", "topics": [{"name": "t", "topic_id": ID, "partitions": [{"committed_offset": 1}]}]},
        ErrorCode.NONE,
    ),
    9: (
        {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": [0]}],
            "groups": [
                {"group_id": "g", "topics": [{"name": "t", "topic_id": ID, "partition_indexes": [0]}]}
            ],
        },
        ErrorCode.NONE,
    ),
    10: ({"key": "g", "coordinator_keys": ["g"]}, ErrorCode.NONE),
    11: (
        {**JOIN, "protocol_type": "consumer", "protocols": [{"name": "range"}]},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    12: ({"group_id": "g", "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    13: (
        {"group_id": "g", "member_id": "nobody", "members": [{"member_id": "nobody"}]},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    14: ({"group_id": "g", "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    15: ({"groups": ["g"]}, ErrorCode.NONE),
    16: ({}, ErrorCode.NONE),
    17: ({"mechanism": "PLAIN"}, ErrorCode.ILLEGAL_SASL_STATE),
    18: ({"client_software_name": "a", "client_software_version": "1"}, ErrorCode.NONE),
    19: (
        {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000},
        ErrorCode.NONE,
    ),
    20: ({"topics": [{"topic_id": ID}], "topic_names": ["t"], "timeout_ms": 1000}, ErrorCode.NONE),
    21: ({"topics": [{"name": "t", "partitions": [{"offset": 0}]}], "timeout_ms": 1000}, ErrorCode.NONE),
    22: ({"transaction_timeout_ms": 1000}, ErrorCode.NONE),
    23: ({"replica_id": -1, "topics": [{"topic": "t", "partitions": [{}]}]}, ErrorCode.NONE),
    24: (
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 1,
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        },
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    25: ({**PRODUCER, "group_id": "g"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    26: (PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    27: (
        {"markers": [{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}]},
        ErrorCode.NONE,
    ),
    28: (
        {**PRODUCER, "group_id": "g", "topics": [{"name": "t", "partitions": [{"committed_offset": 1}]}]},
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    29: (
        {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
        ErrorCode.SECURITY_DISABLED,
    ),
    30: ({"creations": [{**ACL, "permission_type": 3}]}, ErrorCode.SECURITY_DISABLED),
    31: (
        {"filters": [{"resource_type_filter": 2, "operation": 1, "permission_type": 1}]},
        ErrorCode.SECURITY_DISABLED,
    ),
    32: ({"resources": [{"resource_type": 2, "resource_name": "t"}]}, ErrorCode.NONE),
    33: (
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "retention.ms", "value": "9"}],
                }
            ]
        },
        ErrorCode.NONE,
    ),
    34: ({"dirs": [{"path": DIRECTORY, "topics": [{"name": "t", "partitions": [0]}]}]}, ErrorCode.NONE),
    35: ({"topics": None}, ErrorCode.NONE),
    37: ({"topics": [{"name": "t", "count": 3}], "timeout_ms": 1000}, ErrorCode.NONE),
    42: ({"groups_names": ["g"]}, ErrorCode.NONE),
    43: (
        {"topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 1000},
        ErrorCode.ELECTION_NOT_NEEDED,
    ),
    44: (
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "retention.ms", "value": "9"}],
                }
            ]
        },
        ErrorCode.NONE,
    ),
    45: ({"topics": [{"name": "t", "partitions": [{"replicas": [1]}]}]}, ErrorCode.NONE),
    46: ({"topics": None}, ErrorCode.NONE),
    47: ({"group_id": "g", "topics": [{"name": "t", "partitions": [{}]}]}, ErrorCode.NONE),
    48: ({"components": [{"entity_type": "user", "match_type": 2, "match": None}]}, ErrorCode.NONE),
    49: (
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                }
            ]
        },
        ErrorCode.NONE,
    ),
    36: ({"auth_bytes": b"a"}, ErrorCode.ILLEGAL_SASL_STATE),
    50: ({"users": [{"name": "a"}]}, ErrorCode.RESOURCE_NOT_FOUND),
    51: (
        {"upsertions": [{"name": "a", "mechanism": 1, "iterations": 4096}]},
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ),
    55: ({"topics": [{"topic_name": "__cluster_metadata", "partitions": [{}]}]}, ErrorCode.NONE),
    57: ({"feature_updates": [{"feature": "f", "max_version_level": 1}]}, ErrorCode.INVALID_UPDATE_VERSION),
    60: ({}, ErrorCode.NONE),
    61: ({"topics": [{"name": "t", "partition_indexes": [0]}]}, ErrorCode.NONE),
    65: ({"transactional_ids": ["x"]}, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    66: ({}, ErrorCode.NONE),
    68: (
        {
            "group_id": "j",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
        ErrorCode.NONE,
    ),
    69: ({"group_ids": ["j"]}, ErrorCode.GROUP_ID_NOT_FOUND),
    74: ({}, ErrorCode.NONE),
    75: ({"topics": [{"name": "t"}]}, ErrorCode.NONE),
    # The group is a classic one.
    76: (
        {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    77: ({"group_ids": ["g"]}, ErrorCode.GROUP_ID_NOT_FOUND),
    78: (
        {
            "group_id": "g",
            "member_id": "m",
            "max_records": 1,
            "batch_size": 1,
            "topics": [{"topic_id": ID, "partitions": [{"partition_index": 0}]}],
        },
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    79: ({"group_id": "g", "member_id": "m"}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    90: ({"groups": [{"group_id": "g", "topics": None}]}, ErrorCode.GROUP_ID_NOT_FOUND),
    91: ({"group_id": "g"}, ErrorCode.GROUP_ID_NOT_FOUND),
    92: ({"group_id": "g"}, ErrorCode.GROUP_ID_NOT_FOUND),
}


def filled(value: Any, topic_id: UUID, directory: str) -> Any:
    """The fields of a request with what is known of the broker only now."""
    if isinstance(value, dict):
        return {key: filled(one, topic_id, directory) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, topic_id, directory) for one in value]
    return {ID: topic_id, DIRECTORY: directory}.get(value, value) if isinstance(value, str) else value


def records_of(magic: int) -> bytes:
    if magic == 2:
        return bytes(build_batch([NewRecord(value=b"v")], now_ms=1))
    return encode_plain(magic, 0, [(0, -1 if magic == 0 else 1, None, b"v")])


async def prepare(client: Client, broker: Broker) -> None:
    """One topic, "t", and one group, "g", with a position in it."""
    for topic in broker.topics.list():
        await broker.topics.delete(topic.name)
    await client.create("t", 2)
    assert await broker.groups.commit("g", CommitRequest([Commit("t", 0, 1)])) == [ErrorCode.NONE]


def request_of(key: int, version: int, broker: Broker) -> Any:
    topic_id = broker.topics.get("t").topic_id
    if key == 0:
        request = produce_request("t", records_of(produce_magic(version)))
        request.topic_data[0].topic_id = topic_id
        return request
    fields, _ = CASES[key]
    return msgspec.convert(
        filled(fields, topic_id, str(broker.config.data_dir.absolute())), APIS[key].request_type
    )


async def advertised(client: Client) -> dict[int, range]:
    answer = await client.ask(18, 3, ApiVersionsRequest("a-client", "1.0"))
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys}


async def test_each_advertised_api_has_its_case(client: Client) -> None:
    assert {*await advertised(client)} == {0, *CASES}


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: APIS[key].name)
async def test_every_advertised_version_is_answered(client: Client, broker: Broker, key: int) -> None:
    for version in (await advertised(client))[key]:
        await prepare(client, broker)
        answer = await client.ask(key, version, request_of(key, version, broker))
        wanted = ErrorCode.NONE if key == 0 else CASES[key][1]
        codes = set(error_codes(key, answer))
        assert codes == ({wanted} if wanted else set()), (version, answer)


async def test_the_version_after_the_last_one_is_not_answered(client: Client) -> None:
    for key, versions in (await advertised(client)).items():
        frame = key.to_bytes(2) + versions.stop.to_bytes(2) + (7).to_bytes(4) + b"\xff\xff\x00"
        # ApiVersions has a rule of its own: the table, in version 0.
        assert (await client.raw(frame) == (7).to_bytes(4)) is (key != 18), key
