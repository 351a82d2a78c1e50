"""The v2 routes in the OpenAPI document: parameters, bodies, answers and refusals of each, with examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.native.schemas import PATH_NAME, TOPIC_NAME
from app.openapi.records import REQUEST_ID
from app.rest_v2 import schemas as shapes
from core.config import Config

V2 = "application/vnd.kafka.v2+json"
RECORD_TYPES = tuple(f"application/vnd.kafka.{name}.v2+json" for name in ("json", "binary", "text"))
TAG = "rest-proxy"
_REF = "#/components/schemas/V2{}"
_ANYWHERE = (400, 406, 421, 431, 500)
_ON_WRITES = (403, 408, 413, 415, 422, 503, 507)
# An example of each status, and what it means. A dialect may say it with other codes.
_REFUSALS: dict[int, tuple[str, int, str]] = {
    400: ("The request cannot be read.", 400, "The JSON is malformed at byte 7: invalid character."),
    403: ("A page of another origin may not write.", 403, "Pages of this origin may not write here."),
    404: (
        "There is no such topic (40401), partition (40402) or consumer instance (40403).",
        40401,
        "There is no topic named 'orders'.",
    ),
    406: (
        "None of the accepted media types can be answered; 40601: they name another format than the instance has.",
        40601,
        "The requested embedded format 'binary' is not that of this consumer instance, which is 'json'.",
    ),
    408: ("The request took too long to arrive.", 408, "The body was not complete after 60 s."),
    409: (
        "40902: an instance of that name is there. 40903: the instance is not in a state for it; topics, a pattern "
        "and assigned partitions exclude each other.",
        40902,
        "There is a consumer 'reader-1' in the group 'billing'.",
    ),
    410: ("The offset lies below the start of the partition.", 50002, "The log begins at offset 10."),
    413: ("The request, or a record, is too large.", 413, "The body has more than 16777216 bytes."),
    415: ("The media type is not taken here.", 415, "The media type 'text/plain' is not taken here."),
    416: ("The offset lies above the end of the partition.", 50002, "The log ends at offset 10."),
    421: ("The server does not answer for that host name.", 421, "It does not answer for 'example.org'."),
    422: (
        "It can be read, but not accepted. 42201, 42202: a schema is missing; 42203: it does not fit the embedded "
        "format; 42204: a bad option of a consumer; 40002: the broker refuses it.",
        422,
        "The list of records is empty.",
    ),
    429: ("Too much at once.", 42901, "There are too many consumers."),
    431: ("The header lines are too long.", 431, "The header lines are too long."),
    500: ("The server failed.", 500, "The server failed; its log says more."),
    503: ("Not now; try again.", 50003, "The broker is stopping."),
    504: ("The broker did not do it in time.", 50003, "The request timed out."),
    507: ("The disk does not take it.", 50003, "The disk is full."),
}  # fmt: skip
_RECORD_READ = {
    "topic": "orders", "key": "user-1", "value": {"event": "signed-up"}, "partition": 0, "offset": 41,
    "timestamp": 1738324800000, "headers": [{"name": "trace", "value": "N2Y="}],
}  # fmt: skip
# A body for each of RECORD_TYPES.
_WRITES: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "ProduceRequest",
        {"records": [{"key": "user-1", "value": {"event": "signed-up"}}, {"key": "user-2", "value": None}]},
    ),
    ("BinaryProduceRequest", {"records": [{"key": "dXNlci0x", "value": "AAEC"}]}),
    ("TextProduceRequest", {"records": [{"key": "user-1", "value": "signed up"}]}),
)
_PARTITION = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
_PLACES = {"partitions": [{"topic": "orders", "partition": 0}]}
_OFFSETS = {"offsets": [{"topic": "orders", "partition": 0, "offset": 41}]}


def schemas() -> dict[str, Any]:
    """The schemas of all bodies by name."""
    return shapes.schemas()


def paths(config: Config, headers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The operations by path and method; `headers` are those that every answer carries."""
    found: dict[str, dict[str, Any]] = {}
    for method, path, operation in (
        *_metadata(),
        *_records(config),
        *_instances(),
        *_subscriptions(),
        *_reading(config),
    ):
        operation["tags"] = [TAG]
        operation["parameters"] = [
            *(_PATH_PARAMETERS[name] for name in _names_in(path)), *operation.get("parameters", ()),
        ]  # fmt: skip
        for answer in operation["responses"].values():
            if "$ref" not in answer:
                answer["headers"] = dict(headers)
        operation["responses"] = dict(sorted(operation["responses"].items()))
        found.setdefault(path, {})[method] = operation
    return found


def responses(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The refusals by name: all operations share them."""
    return {
        f"V2Refusal{status}": {
            "description": meaning,
            "headers": dict(headers),
            "content": _content(_ref("ErrorMessage"), {"error_code": code, "message": message}),
        }
        for status, (meaning, code, message) in _REFUSALS.items()
    }


# --- the parts of an operation ------------------------------------------------------------------------------


def _parameter(
    name: str, place: str, kind: str, text: str, bounds: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    schema = {"type": kind, **(bounds or {})}
    return {
        "name": name, "in": place, "required": place == "path", "description": text, "schema": schema, **more,
    }  # fmt: skip


_NUMBER = {"minimum": 0, "maximum": 2**31 - 1}
_PATH_PARAMETERS = {
    "topic": _parameter("topic", "path", "string", "The topic's name.", TOPIC_NAME, example="orders"),
    "partition": _parameter("partition", "path", "integer", "The partition, from 0.", _NUMBER, example=0),
    "group": _parameter("group", "path", "string", "The consumer group.", PATH_NAME, example="billing"),
    "instance": _parameter(
        "instance", "path", "string", "The consumer instance.", PATH_NAME, example="reader-1"
    ),
}


def _names_in(path: str) -> list[str]:
    return [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name)}


def _content(schema: dict[str, Any], example: object, types: Iterable[str] = (V2,)) -> dict[str, Any]:
    return {media_type: {"schema": schema, "example": example} for media_type in (*types, "application/json")}


def _body(name: str, example: object) -> dict[str, Any]:
    """What a request holds. `application/json` is taken as well; generators would make a second body of it."""
    return {V2: {"schema": _ref(name), "example": example}}


def _operation(
    name: str,
    summary: str,
    *refusals: int,
    text: str = "",
    body: tuple[str, object] | None = None,
    optional: bool = False,
    schema: dict[str, Any] | None = None,
    example: object = None,
    types: Iterable[str] = (V2,),
    parameters: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """One operation; without a schema its success is 204."""
    responses: dict[str, Any] = {
        "200" if schema else "204": (
            {"description": "Done.", "content": _content(schema, example, types)}
            if schema
            else {"description": "Done; there is nothing to say."}
        )
    }
    for status in {*_ANYWHERE, *refusals}:
        responses[str(status)] = {"$ref": f"#/components/responses/V2Refusal{status}"}
    operation: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    operation["description"] = text or f"{summary}."
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {
            "required": not optional,
            "content": _body(*body),
        }
    return operation


Operations = Iterable[tuple[str, str, dict[str, Any]]]


# --- the operations -----------------------------------------------------------------------------------------


def _metadata() -> Operations:
    topic, partition = "/topics/{topic}", "/topics/{topic}/partitions/{partition}"
    names = {"type": "array", "items": {"type": "string"}}
    yield (
        "get",
        "/",
        _operation(
            "proxyGetRoot",
            "See that a proxy is there",
            schema=_ref("Root"),
            example={},
        ),
    )
    yield (
        "get",
        "/brokers",
        _operation(
            "proxyListBrokers", "Ids of the brokers", schema=_ref("BrokerIds"), example={"brokers": [1]}
        ),
    )
    yield "get", "/topics", _operation("proxyListTopics", "Names of topics", schema=names, example=["orders"])
    yield (
        "get",
        topic,
        _operation(
            "proxyGetTopic", "A topic's settings and partitions", 404, schema=_ref("TopicMetadata"),
            text="An unknown topic is 40403 here.",
            example={"name": "orders", "configs": {"retention.ms": "604800000"}, "partitions": [_PARTITION]},
        ),
    )  # fmt: skip
    yield (
        "get",
        f"{topic}/partitions",
        _operation(
            "proxyListPartitions", "A topic's partitions", 404, example=[_PARTITION],
            schema={"type": "array", "items": _ref("PartitionMetadata")},
        ),
    )  # fmt: skip
    yield (
        "get",
        partition,
        _operation(
            "proxyGetPartition", "One partition", 404, schema=_ref("PartitionMetadata"), example=_PARTITION
        ),
    )
    yield (
        "get",
        f"{partition}/offsets",
        _operation(
            "proxyGetPartitionOffsets", "First and next offset of a partition", 404,
            schema=_ref("PartitionOffsets"), example={"beginning_offset": 0, "end_offset": 42},
        ),
    )  # fmt: skip


def _records(config: Config) -> Operations:
    partition = "/topics/{topic}/partitions/{partition}"
    answer = {
        "offsets": [{"partition": 0, "offset": 41, "error_code": None, "error": None}],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    text = (
        "The media type names the embedded format of keys and values: any JSON, `binary` for base64, or `text`; "
        "`application/json` is taken for JSON, unless another dialect is set; `application/octet-stream` is JSON "
        "with keys and values in base64. One entry for each record comes back, in order; a record that was refused "
        "has an `error_code`."
    )
    for path, name in (("/topics/{topic}", "proxyProduce"), (partition, "proxyProduceToPartition")):
        operation = _operation(
            name, "Write records", 404, 409, 429, 504, *_ON_WRITES, text=text, schema=_ref("ProduceResponse"),
            example=answer, parameters=[REQUEST_ID],
        )  # fmt: skip
        operation["requestBody"] = {
            "required": True,
            "content": {
                media_type: {"schema": _ref(shape), "example": example}
                for media_type, (shape, example) in zip(RECORD_TYPES, _WRITES, strict=True)
            },
        }
        yield "post", path, operation
    yield (
        "get",
        f"{partition}/records",
        _operation(
            "proxyReadPartition", "Read records of one partition", 404, 410, 416, 422, 429, 503,
            text="Stateless: nothing is remembered between two reads.", types=RECORD_TYPES,
            schema={"type": "array", "items": _ref("ConsumerRecord")}, example=[_RECORD_READ],
            parameters=[
                _parameter("offset", "query", "integer", "The first offset wanted; default the first there is."),
                _parameter("timeout", "query", "integer", "Milliseconds to wait for a record; default 0."),
                _max_bytes(config),
            ],
        ),
    )  # fmt: skip


def _max_bytes(config: Config) -> dict[str, Any]:
    return _parameter(
        "max_bytes", "query", "integer",
        f"Bytes of records at most, up to {config.http_max_read_bytes}; one record always comes.",
    )  # fmt: skip


def _instances() -> Operations:
    instance = "/consumers/{group}/instances/{instance}"
    options = {
        "name": "reader-1", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false",
        "fetch.min.bytes": 1, "consumer.request.timeout.ms": 1000,
    }  # fmt: skip
    made = {
        "instance_id": "reader-1",
        "base_uri": "http://127.0.0.1:8082/consumers/billing/instances/reader-1",
    }
    yield (
        "post",
        "/consumers/{group}",
        _operation(
            "proxyCreateConsumer", "Make a consumer instance", 409, 429, *_ON_WRITES,
            body=("CreateInstance", options), optional=True, schema=_ref("InstanceCreated"), example=made,
            text="It lives through restarts, and is deleted after five minutes without a request. The format is "
            "json, binary or text; avro, jsonschema and protobuf are taken as well, but without a schema registry "
            "a read refuses every value but null (42203).",
        ),
    )  # fmt: skip
    yield "delete", instance, _operation("proxyDeleteConsumer", "Delete an instance", 403, 404, 409, 503, 507)


def _subscriptions() -> Operations:
    instance = "/consumers/{group}/instances/{instance}"
    path = f"{instance}/subscription"
    yield (
        "post",
        path,
        _operation(
            "proxySubscribe", "Subscribe to topics or to a pattern", 404, 409, *_ON_WRITES,
            body=("Subscribe", {"topics": ["orders"]}),
        ),
    )  # fmt: skip
    yield (
        "get",
        path,
        _operation(
            "proxyGetSubscription", "Topics of the subscription", 404, schema=_ref("Topics"),
            example={"topics": ["orders"]},
        ),
    )  # fmt: skip
    yield "delete", path, _operation("proxyUnsubscribe", "Unsubscribe", 403, 404, 409, 503, 507)
    path = f"{instance}/assignments"
    yield (
        "post",
        path,
        _operation(
            "proxyAssign", "Read these partitions, without the group", 404, 409, *_ON_WRITES,
            body=("Partitions", _PLACES),
        ),
    )  # fmt: skip
    yield (
        "get",
        path,
        _operation(
            "proxyGetAssignments",
            "Partitions that are assigned",
            404,
            schema=_ref("Partitions"),
            example=_PLACES,
        ),
    )


def _reading(config: Config) -> Operations:
    instance = "/consumers/{group}/instances/{instance}"
    yield (
        "get",
        f"{instance}/records",
        _operation(
            "proxyReadRecords", "The next records", 404, 409, 410, 416, 422, 429, 503, 507, types=RECORD_TYPES,
            text="Answered on first data, at the latest after `timeout`; the first call waits for the group as well.",
            schema={"type": "array", "items": _ref("ConsumerRecord")}, example=[_RECORD_READ],
            parameters=[
                _parameter("timeout", "query", "integer", "Milliseconds to wait; default the instance's."),
                _max_bytes(config),
            ],
        ),
    )  # fmt: skip
    path = f"{instance}/offsets"
    commit = _operation(
        "proxyCommitOffsets", "Commit offsets", 404, 409, *_ON_WRITES, body=("CommitOffsets", _OFFSETS),
        optional=True, schema={"type": "array", "items": {}, "maxItems": 0}, example=[],
        text="The offset of the last record dealt with: the next one is stored. Without a body, what was delivered.",
    )  # fmt: skip
    commit["responses"]["204"] = {"description": "Done; so the dialects other than Confluent's."}
    yield "post", path, commit
    yield (
        "get",
        path,
        _operation(
            "proxyGetCommittedOffsets", "Committed offsets", 404, 409, 413, 415, 422, schema=_ref("CommittedOffsets"),
            example={"offsets": [{"topic": "orders", "partition": 0, "offset": 42, "metadata": ""}]},
            text="Of one partition by the query; of several by a body `{partitions: [{topic, partition}]}`.",
            parameters=[
                _parameter("topic", "query", "string", "The topic."),
                _parameter("partition", "query", "integer", "The partition."),
            ],
        ),
    )  # fmt: skip
    refusals = (404, 409, 410, 416, *_ON_WRITES)
    path = f"{instance}/positions"
    yield (
        "post",
        path,
        _operation("proxySeek", "Go on at offsets or moments", *refusals, body=("Seek", _OFFSETS)),
    )
    for where in ("beginning", "end"):
        yield (
            "post",
            f"{path}/{where}",
            _operation(
                f"proxySeekTo{where.capitalize()}",
                f"Go on at the {where}",
                *refusals,
                body=("Partitions", _PLACES),
            ),
        )
