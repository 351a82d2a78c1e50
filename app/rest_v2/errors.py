"""Refusals of the v2 surface: `{error_code, message}`.

`error_code` is a number of its own: the HTTP status with two more digits where v2 distinguishes cases, else the
status. Broker errors use the same table of statuses as on the native surface; their v2 codes are here.
"""

from __future__ import annotations

import msgspec

from app.errors import Problem, Rendered, from_broker
from app.rest_v2.schemas import ErrorMessage
from core.errors import BrokerError, ErrorCode

UNAUTHENTICATED = 40101
TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
# Also an unknown topic on GET /topics/{topic}.
INSTANCE_NOT_FOUND = 40403
FORMAT_MISMATCH = 40601
INSTANCE_EXISTS = 40902
# Also topics, a pattern and assigned partitions beside each other.
ILLEGAL_STATE = 40903
UNPROCESSABLE = 422
KEY_SCHEMA_MISSING = 42201
VALUE_SCHEMA_MISSING = 42202
BAD_CONSUMER_CONFIG = 42204
KAFKA_BAD_REQUEST = 40002
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003

_C = ErrorCode
# The codes of broker errors that do not follow from their status, see `code_of`.
_CODES: dict[ErrorCode, int] = {
    _C.INVALID_TOPIC_EXCEPTION: KAFKA_BAD_REQUEST,
    _C.INVALID_RECORD: KAFKA_BAD_REQUEST,
    _C.INVALID_CONFIG: KAFKA_BAD_REQUEST,
    _C.INVALID_PARTITIONS: KAFKA_BAD_REQUEST,
    _C.TOPIC_ALREADY_EXISTS: KAFKA_BAD_REQUEST,
    _C.OFFSET_OUT_OF_RANGE: KAFKA_ERROR,
    _C.UNKNOWN_MEMBER_ID: INSTANCE_NOT_FOUND,
    _C.GROUP_ID_NOT_FOUND: INSTANCE_NOT_FOUND,
    _C.ILLEGAL_GENERATION: ILLEGAL_STATE,
    _C.REBALANCE_IN_PROGRESS: ILLEGAL_STATE,
    _C.FENCED_INSTANCE_ID: ILLEGAL_STATE,
    _C.NON_EMPTY_GROUP: ILLEGAL_STATE,
    _C.THROTTLING_QUOTA_EXCEEDED: 42901,
}
_BY_STATUS = {401: UNAUTHENTICATED, 403: 40301, 413: 413, 422: KAFKA_BAD_REQUEST, 501: 501}
# For the OpenAPI document: what each status means, with a code and a message. A dialect may have other codes.
MEANINGS: dict[int, tuple[str, int, str]] = {
    400: ("The request cannot be read.", 400, "The JSON is malformed at byte 7: invalid character."),
    401: ("The request has no valid credentials.", 40101, "This server asks its clients to log in."),
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
    501: ("A gateway over a cluster cannot do that.", 501, "This gateway has no consumer instances."),
    503: ("Not now; try again.", 50003, "The broker is stopping."),
    504: ("The broker did not do it in time.", 50003, "The request timed out."),
    507: ("The disk does not take it.", 50003, "The disk is full."),
}  # fmt: skip


class ProxyError(Exception):
    """A refusal in v2's own words; `names` are the topic and the partition that it speaks of, if any."""

    def __init__(self, status: int, error_code: int, message: str, **names: object) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.names = names


def code_of(problem: Problem) -> int:
    """The v2 code of a problem.

    A broker error that has none of its own is 50003 where trying again may help, else 50002. A problem that is not
    Kafka's has its status alone.
    """
    code = problem.code
    if code is None:
        return problem.status
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return PARTITION_NOT_FOUND if "partition" in problem.extra else TOPIC_NOT_FOUND
    known = _CODES.get(code) or _BY_STATUS.get(problem.status)
    return known or (KAFKA_RETRIABLE_ERROR if code.retriable else KAFKA_ERROR)


def code_of_record(error: BrokerError, record_codes: tuple[int, int]) -> int:
    """The code of one refused record among others."""
    return record_codes[1] if error.code.retriable else record_codes[0]


def topic_not_found(name: str, error_code: int = TOPIC_NOT_FOUND) -> ProxyError:
    """404 for a topic that does not exist."""
    return ProxyError(404, error_code, f"There is no topic named {name[:250]!r}.", topic=name[:250])


def unprocessable(message: str, error_code: int = UNPROCESSABLE) -> ProxyError:
    """422: it can be read, but not accepted."""
    return ProxyError(422, error_code, message)


def bad_config(message: str) -> ProxyError:
    """422/42204: an option of a new consumer that makes no sense."""
    return unprocessable(f"Invalid consumer configuration: {message}", BAD_CONSUMER_CONFIG)


def illegal_state(message: str) -> ProxyError:
    """409/40903: the instance is not in a state for it."""
    return ProxyError(409, ILLEGAL_STATE, f"Illegal state: {message}")


def as_problem(error: Problem | BrokerError) -> Problem:
    """A refusal of the broker as a problem, which knows its status and headers."""
    return error if isinstance(error, Problem) else from_broker(error)


def body_of(error_code: int, message: str) -> bytes:
    """The JSON of a refusal."""
    return msgspec.json.encode(ErrorMessage(error_code, message))


def render_before_routing(problem: Problem, instance: str) -> Rendered:
    """Render what the router refuses before it asks a surface: foreign hosts and origins, broken paths, failures."""
    code = UNAUTHENTICATED if problem.status == 401 else problem.status
    return Rendered("application/json", body_of(code, problem.detail))
