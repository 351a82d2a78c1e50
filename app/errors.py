"""Every refusal over HTTP: one table from broker error to status, and one renderer per surface.

A refusal is a `Problem` (RFC 9457). Routes raise it, or let a `BrokerError` through; `app.http.refusals` turns both
into an answer in the shape of the surface that was called: problem documents for the native API, `{error_code,
message}` for REST Proxy v2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from core.errors import BrokerError, ErrorCode

PROBLEM_MEDIA_TYPE = "application/problem+json"
# Seconds after which a refused request may be tried again, where waiting helps.
RETRY_AFTER_SECONDS = 1


class Kind(NamedTuple):
    """A kind of problem that is not Kafka's: its status, its title, and what to do about it."""

    status: int
    title: str
    advice: str


KINDS: dict[str, Kind] = {
    "malformed-request": Kind(
        400,
        "The request cannot be read",
        "The bytes are not what they claim to be: JSON that is not JSON, text that is not UTF-8, a broken path. "
        "`detail` says where.",
    ),
    "unauthenticated": Kind(
        401,
        "The request has no valid credentials",
        "Send `Authorization: Bearer` with a token, or `Authorization: Basic` with a user and a password. The header "
        "WWW-Authenticate says what this listener takes.",
    ),
    "foreign-origin": Kind(
        403,
        "A page of another origin may not write",
        "The request carries the Origin of a web page that is not served from here. Allow that origin with "
        "--allowed-origin if it is yours.",
    ),
    "not-found": Kind(404, "Nothing is here", "No route has this path. `/openapi.json` lists all."),
    "method-not-allowed": Kind(
        405, "This path does not take that method", "The Allow header lists the methods that it takes."
    ),
    "not-acceptable": Kind(
        406, "None of the accepted media types can be answered", "Send `Accept: application/json`, or none."
    ),
    "request-timeout": Kind(
        408, "The request took too long to arrive", "Send it again over a better connection."
    ),
    "topic-differs": Kind(
        409,
        "The topic exists with another shape",
        "PUT creates a topic or confirms that it is as asked. Change an existing one with PATCH.",
    ),
    "idempotency-key-in-use": Kind(
        409,
        "A request with that idempotency key is under way",
        "Its answer is not known yet. Send the same request again after the time that Retry-After names.",
    ),
    "group-type": Kind(
        409,
        "The group is of another type",
        "A queue is a share group. The name belongs to a consumer group: choose another name, or delete that group.",
    ),
    "precondition-failed": Kind(
        412,
        "The resource has changed meanwhile",
        "If-Match names another version than the one that is there. Read it again, then repeat the change.",
    ),
    "payload-too-large": Kind(
        413,
        "The request is too large",
        "`limit` says how many bytes, or records, are taken. Send less at once.",
    ),
    "unsupported-media-type": Kind(
        415,
        "The body's media type is not taken here",
        "Send JSON with `Content-Type: application/json`, in UTF-8, without Content-Encoding.",
    ),
    "unknown-host": Kind(
        421,
        "This server does not answer for that host name",
        "The Host header holds a name that this server does not know, as in a DNS rebinding attack. Use the IP "
        "address, or allow the name with --allowed-host.",
    ),
    "invalid-request": Kind(
        422,
        "The request can be read, but not accepted",
        "`errors` lists what is wrong and where: the record's index, the field, a JSON pointer.",
    ),
    "idempotency-key-reused": Kind(
        422,
        "The idempotency key belongs to another request",
        "A key belongs to one request: its path, query and body. Repeat that request unchanged, or use a new key.",
    ),
    "header-too-large": Kind(431, "The header lines are too long", "Send fewer or shorter header lines."),
    "internal-error": Kind(
        500,
        "The server failed",
        "This is a mistake in the server. Its log has an entry with the same `X-Request-Id`; please report it.",
    ),
    "untrusted-hop": Kind(
        403,
        "The request claims to come from another gateway",
        "Leave the header Sluice-Hop out. If a gateway has sent it, the gateways have different secrets.",
    ),
    "owner-unavailable": Kind(
        503,
        "The gateway that owns the request does not answer",
        "A consumer or an Idempotency-Key belongs to one gateway. Repeat the request after the time that "
        "Retry-After names. `gateway` names the owner.",
    ),
    "gateways-differ": Kind(
        503,
        "The gateways do not agree on the owner of the request",
        "Start all gateways with the same list (--gateway), and each with its own name (--gateway-name).",
    ),
    "missing-capability": Kind(
        501,
        "This server cannot do that",
        "`capability` names what is missing. A gateway over an existing cluster can do less than an embedded broker: "
        "`capabilities` of `GET /api/v1/` lists what this server can do.",
    ),
    "not-ready": Kind(503, "The server is starting or stopping", "Try again in a moment."),
}

# Kafka's errors by HTTP status. Each code is here exactly once; a test checks that.
_C = ErrorCode
STATUS_OF: dict[ErrorCode, int] = {
    code: status
    for status, codes in {
        400: (
            _C.INVALID_REQUEST, _C.UNSUPPORTED_FOR_MESSAGE_FORMAT, _C.INVALID_REQUIRED_ACKS, _C.CORRUPT_MESSAGE,
            _C.INVALID_FETCH_SIZE, _C.UNSUPPORTED_COMPRESSION_TYPE, _C.INVALID_PRINCIPAL_TYPE,
            _C.UNSUPPORTED_ENDPOINT_TYPE, _C.MISMATCHED_ENDPOINT_TYPE,
        ),
        401: (
            _C.UNSUPPORTED_SASL_MECHANISM, _C.ILLEGAL_SASL_STATE, _C.SASL_AUTHENTICATION_FAILED,
            _C.DELEGATION_TOKEN_EXPIRED,
        ),
        403: (
            _C.TOPIC_AUTHORIZATION_FAILED, _C.GROUP_AUTHORIZATION_FAILED, _C.CLUSTER_AUTHORIZATION_FAILED,
            _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _C.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            _C.DELEGATION_TOKEN_OWNER_MISMATCH, _C.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            _C.DELEGATION_TOKEN_AUTH_DISABLED, _C.SECURITY_DISABLED, _C.POLICY_VIOLATION,
            _C.TOPIC_DELETION_DISABLED,
        ),
        404: (
            _C.UNKNOWN_TOPIC_OR_PARTITION, _C.UNKNOWN_TOPIC_ID, _C.UNKNOWN_MEMBER_ID, _C.GROUP_ID_NOT_FOUND,
            _C.RESOURCE_NOT_FOUND, _C.UNKNOWN_PRODUCER_ID, _C.TRANSACTIONAL_ID_NOT_FOUND, _C.LOG_DIR_NOT_FOUND,
            _C.DELEGATION_TOKEN_NOT_FOUND, _C.FETCH_SESSION_ID_NOT_FOUND, _C.SNAPSHOT_NOT_FOUND,
            _C.BROKER_ID_NOT_REGISTERED, _C.LISTENER_NOT_FOUND, _C.SHARE_SESSION_NOT_FOUND, _C.VOTER_NOT_FOUND,
            _C.UNKNOWN_SUBSCRIPTION_ID, _C.UNKNOWN_CONTROLLER_ID, _C.REPLICA_NOT_AVAILABLE,
        ),
        409: (
            _C.TOPIC_ALREADY_EXISTS, _C.ILLEGAL_GENERATION, _C.REBALANCE_IN_PROGRESS, _C.FENCED_INSTANCE_ID,
            _C.NON_EMPTY_GROUP, _C.MEMBER_ID_REQUIRED, _C.UNRELEASED_INSTANCE_ID, _C.FENCED_MEMBER_EPOCH,
            _C.STALE_MEMBER_EPOCH, _C.GROUP_SUBSCRIBED_TO_TOPIC, _C.GROUP_MAX_SIZE_REACHED,
            _C.INCONSISTENT_GROUP_PROTOCOL, _C.OUT_OF_ORDER_SEQUENCE_NUMBER, _C.DUPLICATE_SEQUENCE_NUMBER,
            _C.INVALID_PRODUCER_EPOCH, _C.INVALID_TXN_STATE, _C.INVALID_PRODUCER_ID_MAPPING,
            _C.CONCURRENT_TRANSACTIONS, _C.TRANSACTION_COORDINATOR_FENCED, _C.TRANSACTION_ABORTABLE,
            _C.PRODUCER_FENCED, _C.FENCED_LEADER_EPOCH, _C.UNKNOWN_LEADER_EPOCH, _C.DUPLICATE_RESOURCE,
            _C.REASSIGNMENT_IN_PROGRESS, _C.NO_REASSIGNMENT_IN_PROGRESS, _C.ELECTION_NOT_NEEDED,
            _C.OPERATION_NOT_ATTEMPTED, _C.STALE_CONTROLLER_EPOCH, _C.STALE_BROKER_EPOCH,
            _C.INVALID_FETCH_SESSION_EPOCH, _C.INVALID_SHARE_SESSION_EPOCH, _C.FENCED_STATE_EPOCH,
            _C.INCONSISTENT_TOPIC_ID, _C.INCONSISTENT_CLUSTER_ID, _C.INCONSISTENT_VOTER_SET,
            _C.FETCH_SESSION_TOPIC_ID_ERROR, _C.DUPLICATE_BROKER_REGISTRATION, _C.DUPLICATE_VOTER,
            _C.STREAMS_INVALID_TOPOLOGY_EPOCH, _C.STREAMS_TOPOLOGY_FENCED,
            _C.INVALID_RECORD_STATE, _C.INVALID_UPDATE_VERSION, _C.FEATURE_UPDATE_FAILED,
        ),
        # 416 above the end; `from_broker` makes it 410 below the start.
        416: (_C.OFFSET_OUT_OF_RANGE, _C.POSITION_OUT_OF_RANGE),
        413: (_C.MESSAGE_TOO_LARGE, _C.RECORD_LIST_TOO_LARGE, _C.TELEMETRY_TOO_LARGE),
        422: (
            _C.INVALID_TOPIC_EXCEPTION, _C.INVALID_RECORD, _C.INVALID_CONFIG, _C.INVALID_PARTITIONS,
            _C.INVALID_REPLICATION_FACTOR, _C.INVALID_REPLICA_ASSIGNMENT, _C.INVALID_TIMESTAMP,
            _C.INVALID_GROUP_ID, _C.INVALID_SESSION_TIMEOUT, _C.INVALID_COMMIT_OFFSET_SIZE,
            _C.OFFSET_METADATA_TOO_LARGE, _C.INVALID_TRANSACTION_TIMEOUT, _C.UNSUPPORTED_ASSIGNOR,
            _C.UNACCEPTABLE_CREDENTIAL, _C.PRINCIPAL_DESERIALIZATION_FAILURE, _C.INVALID_REGISTRATION,
            _C.INVALID_REGULAR_EXPRESSION, _C.INVALID_VOTER_KEY, _C.INELIGIBLE_REPLICA,
            _C.STREAMS_INVALID_TOPOLOGY,
        ),
        429: (_C.THROTTLING_QUOTA_EXCEEDED, _C.SHARE_SESSION_LIMIT_REACHED),
        500: (_C.UNKNOWN_SERVER_ERROR, _C.NONE),
        # What a cluster, or a gateway over it, does not have.
        501: (_C.UNSUPPORTED_VERSION,),
        503: (
            _C.COORDINATOR_LOAD_IN_PROGRESS, _C.COORDINATOR_NOT_AVAILABLE, _C.NOT_COORDINATOR,
            _C.NOT_LEADER_OR_FOLLOWER, _C.LEADER_NOT_AVAILABLE, _C.NOT_ENOUGH_REPLICAS,
            _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _C.BROKER_NOT_AVAILABLE, _C.NETWORK_EXCEPTION, _C.NOT_CONTROLLER,
            _C.OFFSET_NOT_AVAILABLE, _C.PREFERRED_LEADER_NOT_AVAILABLE, _C.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            _C.UNSTABLE_OFFSET_COMMIT, _C.NEW_LEADER_ELECTED, _C.OFFSET_MOVED_TO_TIERED_STORAGE,
            _C.REBOOTSTRAP_REQUIRED,
        ),
        504: (_C.REQUEST_TIMED_OUT,),
        507: (_C.KAFKA_STORAGE_ERROR,),
    }.items()
    for code in codes
}  # fmt: skip

# Slugs that differ from the name of the code.
_SLUGS = {
    ErrorCode.UNKNOWN_MEMBER_ID: "unknown-member",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "invalid-topic",
    ErrorCode.INVALID_REQUEST: "kafka-invalid-request",
    ErrorCode.NONE: "internal-error",
    ErrorCode.UNKNOWN_SERVER_ERROR: "internal-error",
}


def slug_of(code: ErrorCode) -> str:
    """The last part of the `type` URI of a broker error."""
    return _SLUGS.get(code) or code.name.lower().replace("_", "-")


def title_of(code: ErrorCode) -> str:
    """The title of a broker error: its name as a sentence."""
    return code.name.replace("_", " ").capitalize()


def field_error(detail: str, *, pointer: str = "", **where: object) -> dict[str, object]:
    """One entry of `errors`: what is wrong, a JSON pointer into the body, and where it is in plain words."""
    entry: dict[str, object] = {"detail": detail}
    if pointer:
        entry["pointer"] = pointer
    return entry | where


class Problem(Exception):  # noqa: N818 (the word of RFC 9457)
    """A refusal, ready to be rendered. `extra` are more members of the document; they replace nothing."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        status: int | None = None,
        code: ErrorCode | None = None,
        errors: Sequence[Mapping[str, object]] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.status = status if status is not None else (STATUS_OF[code] if code else KINDS[kind].status)
        self.title = title_of(code) if code else KINDS[kind].title
        self.code = code
        self.errors = errors
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        if self.status in (429, 503):
            self.headers.setdefault("retry-after", str(RETRY_AFTER_SECONDS))

    def members(self) -> dict[str, Any]:
        """The members of the problem document, but for `instance`."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.code is not None:
            document["kafka_error"] = self.code.name
            document["kafka_error_code"] = int(self.code)
            document["retriable"] = self.code.retriable
        else:
            document["retriable"] = self.status in (408, 429, 503) or "retry-after" in self.headers
        if self.errors:
            document["errors"] = list(self.errors)
        return {**self.extra, **document}


def from_broker(error: BrokerError, *, offset: int | None = None) -> Problem:
    """Return the problem for a broker error; `offset` is the requested one, if any.

    An offset below the log start offset is deleted for good (410); one above the log end may still come (416).
    """
    if error.details.get("reason") == "group-type":
        return Problem("group-type", error.message)
    status = STATUS_OF[error.code]
    details = {key: value for key, value in error.details.items() if key != "record_errors"}
    wait = details.pop("retry_after", None)
    start = details.get("log_start_offset")
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and offset is not None and isinstance(start, int):
        status = 410 if offset < start else 416
    errors: list[dict[str, object]] = []
    record_errors = error.details.get("record_errors")
    if isinstance(record_errors, Sequence):
        errors = [field_error(str(text), pointer=f"#/records/{i}", record=i) for i, text in record_errors]
    detail, headers = error.message, {} if wait is None else {"retry-after": str(wait)}
    if details.get("insufficient_scope"):
        # RFC 6750, section 3.1.
        headers["www-authenticate"] = 'Bearer realm="sluice", error="insufficient_scope"'
        detail += " The scope of the token does not include it."
    return Problem(
        slug_of(error.code),
        detail,
        status=status,
        code=error.code,
        errors=errors,
        headers=headers,
        extra=details,
    )


class Rendered(NamedTuple):
    """A refusal as bytes."""

    media_type: str
    body: bytes


Renderer = Callable[[Problem, str], Rendered]


def render_problem(problem: Problem, instance: str) -> Rendered:
    """A problem document of RFC 9457; `instance` is the path that was asked for."""
    document = problem.members() | {"instance": instance}
    return Rendered(PROBLEM_MEDIA_TYPE, msgspec.json.encode(document, enc_hook=str))
