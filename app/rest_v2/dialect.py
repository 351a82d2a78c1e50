"""Where the four proxies that share the v2 wire format differ.

The paths, bodies and most codes are the same in Confluent's REST Proxy, Karapace, Strimzi's bridge and Redpanda's
HTTP proxy. The differences are data in this file; no route checks the dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import BrokerError, ErrorCode


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to speak v2. A status or code that is not named here is the same in all dialects."""

    name: str
    # 1: the offset in a commit is that of the last record dealt with, and the next one is stored.
    commit_adds: int = 1
    commit_status: int = 200
    commit_body: bytes = b"[]"
    poll_wait_ms: int = 1_000
    not_assigned_status: int = 409
    not_assigned_code: int = 40903
    offset_reset: str = "latest"
    auto_commit: bool = True
    # The embedded format of records whose media type is `application/json`.
    json_format: str = "json"
    header_name: str = "name"

    # --- refusals
    # Whether the error code is the HTTP status, in place of Confluent's code.
    plain_codes: bool = False
    # Replaced messages: (Confluent's code, a template for the topic and the partition).
    messages: tuple[tuple[int, str], ...] = ()
    # For topics, a pattern and assigned partitions beside each other: the words of Kafka's IllegalStateException.
    mixed_subscription: str = (
        "Illegal state: Subscription to topics, partitions and pattern are mutually exclusive"
    )
    # The status of a produce body in which a value has the wrong type.
    wrong_type_status: int = 422
    # Status and code of a key or value in a produce body that its format cannot convert.
    conversion: tuple[int, int] = (422, 42203)
    # The code of a stored record that the format cannot show (the status is 422), and how its message begins.
    unreadable_code: int = 42203
    unreadable: str = ""

    # --- answers to a produce request
    # The codes of one refused record: for good, and where trying again may help.
    record_codes: tuple[int, int] = (50002, 50003)
    # Replaced texts of one refused record.
    record_errors: tuple[tuple[ErrorCode, str], ...] = ()
    # The status of an answer in which a record was refused.
    refused_status: int = 200
    # Whether 413 without entries is the answer where every record was too large.
    too_large_refuses: bool = True

    # Whether the entry of a record leaves out what is null, and a record as read its headers if it has none.
    sparse: bool = False
    # Whether `/_health` is served.
    health: bool = False

    def code(self, error_code: int, status: int) -> int:
        """The `error_code` for a code of Confluent's."""
        return status if self.plain_codes else error_code

    def message(self, error_code: int, message: str, names: Mapping[str, object]) -> str:
        """The text of a refusal with a code of Confluent's; `names` are the topic and partition, if known."""
        for code, text in self.messages:
            if code == error_code:
                try:
                    return text.format_map(names)
                except KeyError:
                    break
        return message

    def record_error(self, error: BrokerError) -> str:
        """The text of one refused record among others."""
        return dict(self.record_errors).get(error.code, error.message)


_C = ErrorCode
# Texts that clients of Karapace compare: aiokafka's descriptions of errors, and its IllegalStateError.
_KARAPACE_RECORD_ERRORS = (
    (
        _C.UNKNOWN_TOPIC_OR_PARTITION,
        "This request is for a topic or partition that does not exist on this broker.",
    ),
    (
        _C.MESSAGE_TOO_LARGE,
        "The server has a configurable maximum message size to avoid unbounded memory allocation. This error is "
        "thrown if the client attempt to produce a message larger than this maximum.",
    ),
)
_KARAPACE_MIXED_SUBSCRIPTION = (
    "IllegalStateError: You must choose only one way to configure your consumer: (1) subscribe to specific topics "
    "by name, (2) subscribe to topics matching a regex pattern, (3) assign itself specific topic-partitions."
)
_KARAPACE_MESSAGES = (
    (404, "Partition {partition} not found"),
    (40401, "Topic {topic} not found"),
    (40402, "Partition {partition} not found"),
    (40403, "Topic {topic} not found"),
)


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("confluent"),
        Dialect(
            "karapace",
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=11_000,
            offset_reset="earliest",
            json_format="binary",
            record_codes=(1, 2),
            record_errors=_KARAPACE_RECORD_ERRORS,
            refused_status=422,
            too_large_refuses=False,
            sparse=True,
            wrong_type_status=400,
            conversion=(400, 400),
            unreadable_code=422,
            unreadable="{field} deserialization error for format {format}: ",
            messages=_KARAPACE_MESSAGES,
            mixed_subscription=_KARAPACE_MIXED_SUBSCRIPTION,
            health=True,
        ),
        Dialect(
            "strimzi",
            commit_adds=0,
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=100,
            not_assigned_status=404,
            not_assigned_code=404,
            header_name="key",
            plain_codes=True,
            record_codes=(500, 503),
        ),
        Dialect(
            "redpanda",
            commit_adds=0,
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=100,
            offset_reset="earliest",
            auto_commit=False,
        ),
    )
}
