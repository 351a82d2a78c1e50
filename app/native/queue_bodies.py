"""Bodies of `:receive` and `:settle`, and their answers. Both routes run below FastAPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from app.errors import Problem, field_error
from app.http.json_errors import Fault, fault_of, refuse_fault
from app.http.parameters import parse_moment
from app.native.receipts import MAX_RECEIPT
from app.native.record_schemas import Encoding, RecordRead
from core.config import Config
from core.vocabulary.queues import (
    EARLIEST,
    LATEST,
    MAX_DELAY_MS,
    MAX_LOCK_MS,
    MAX_RECEIVE,
    MAX_SETTLE,
    MAX_WAIT_MS,
    MIN_LOCK_MS,
    Outcome,
    QueueSettings,
    Start,
)

_LIMITS = Config()
T = TypeVar("T")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# As for polls of managed consumers: any proxy lets such a wait pass.
DEFAULT_WAIT_MS = 5_000
# A reason of a rejection, in characters; it is kept with the dead letter.
MAX_REASON = 500

_RECEIPT = "5f3a9c01.7f.Jb0lSDG3QkmnvGJHTUrkcA.0.29"
_LEASED: dict[str, Any] = {
    **RecordRead.EXAMPLES[0], "delivery_count": 1, "receipt": _RECEIPT,
}  # fmt: skip

Text = Annotated[str, Meta(max_length=MAX_RECEIPT)]
LockMs = Annotated[int, Meta(ge=MIN_LOCK_MS, le=MAX_LOCK_MS)]
DelayMs = Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)]
_ReceiptOf = Annotated[Text | UnsetType, Meta(description="The record: its `receipt`. Or name a `lease`.")]
_LeaseOf = Annotated[
    Text | UnsetType,
    Meta(description="A whole `lease`: what is left of it after the items with receipts of this request."),
]
OutcomeName = Literal["settled", "already-settled", "late", "lease-lost", "gone", "invalid"]
OUTCOMES: dict[Outcome, OutcomeName] = {
    Outcome.SETTLED: "settled",
    Outcome.ALREADY_SETTLED: "already-settled",
    Outcome.LATE: "late",
    Outcome.LEASE_LOST: "lease-lost",
    Outcome.GONE: "gone",
    Outcome.INVALID: "invalid",
}
Blocked = Literal["in-flight-limit", "key-order", "paused", "unserved"]
CauseName = Literal["rejected", "limit", "expired", "lost"]


# --- requests -----------------------------------------------------------------------------------------------


class ToRelease(Struct, forbid_unknown_fields=True, gc=False):
    """A record, or a lease, that is to be delivered again."""

    receipt: _ReceiptOf = UNSET
    lease: _LeaseOf = UNSET
    delay_ms: Annotated[
        DelayMs | UnsetType | None,
        Meta(description="Deliver it again after this time; without it the back-off of the queue decides."),
    ] = UNSET
    count: Annotated[
        bool, Meta(description="false gives the delivery back: it does not count towards `delivery_limit`.")
    ] = True


class ToReject(Struct, forbid_unknown_fields=True, gc=False):
    """A record, or a lease, that is given up: it becomes a dead letter, or is settled if the queue keeps none."""

    receipt: _ReceiptOf = UNSET
    lease: _LeaseOf = UNSET
    reason: Annotated[str, Meta(max_length=MAX_REASON, description="Kept with the dead letter.")] = ""


class ToExtend(Struct, forbid_unknown_fields=True, gc=False):
    """A record, or a lease, whose lock is to last longer."""

    receipt: _ReceiptOf = UNSET
    lease: _LeaseOf = UNSET
    lock_ms: Annotated[
        LockMs | UnsetType | None,
        Meta(
            description="The new lock, from now on; without it that of the queue. A lease lasts 12 hours at most."
        ),
    ] = UNSET


class Settlement(Struct, forbid_unknown_fields=True):
    """What became of received records. At most 1,000 items; those with receipts come before those with leases."""

    accept: Annotated[list[Text], Meta(description="Done: receipts, or leases.")] = []
    release: Annotated[list[ToRelease], Meta(description="Deliver again, at once or later.")] = []
    reject: Annotated[list[ToReject], Meta(description="Never deliver again: give them up.")] = []
    extend: Annotated[list[ToExtend], Meta(description="Still at work: a longer lock.")] = []

    EXAMPLES: ClassVar[list[Any]] = [
        {"accept": ["7f"]},
        {"release": [{"receipt": _RECEIPT, "delay_ms": 60000}], "accept": ["7f"]},
        {"reject": [{"receipt": _RECEIPT, "reason": "no such customer"}]},
        {"extend": [{"lease": "7f", "lock_ms": 300000}]},
    ]


class CommittedOffsetsOf(Struct, forbid_unknown_fields=True, gc=False):
    """The committed offsets of a consumer group, as the place where a queue begins."""

    group: Annotated[str, Meta(min_length=1, max_length=1000)]


class ToReceive(Struct, forbid_unknown_fields=True):
    """What to receive at most, for how long to wait and to lock."""

    max: Annotated[Annotated[int, Meta(ge=1, le=MAX_RECEIVE)], Meta(description="Records at most.")] = 1
    max_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=_LIMITS.http_max_read_bytes)],
        Meta(description="Bytes of keys, values and headers at most; one record is always delivered."),
    ] = _LIMITS.http_default_read_bytes
    wait_ms: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)],
        Meta(description="How long to wait for a record if there is none."),
    ] = DEFAULT_WAIT_MS
    lock_ms: Annotated[
        LockMs | UnsetType | None,
        Meta(description="For how long the records are yours; without it `lock_ms` of the queue."),
    ] = UNSET
    attempt: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType | None,
        Meta(
            description="A name that you make up for this call. The same name again gets the same lease again, as "
            "long as it lives and nothing of it is settled: so a lost answer costs no delivery."
        ),
    ] = UNSET
    encoding: Encoding = "auto"
    settle: Annotated[
        Settlement | UnsetType | None,
        Meta(description="Settle records of earlier leases first; `settled` of the answer has the outcomes."),
    ] = UNSET
    topics: Annotated[
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=249)]],
            Meta(min_length=1, max_length=_LIMITS.max_subscription),
        ]
        | UnsetType
        | None,
        Meta(
            description="Create the queue over these topics if it is missing. An existing queue stays as it is."
        ),
    ] = UNSET
    pattern: Annotated[
        Annotated[str, Meta(min_length=1, max_length=10_000)] | UnsetType | None,
        Meta(
            description="The same with an RE2 expression: all topics whose whole name it matches, also later ones."
        ),
    ] = UNSET
    start: Annotated[
        str | int | CommittedOffsetsOf | UnsetType | None,
        Meta(
            description="Where a queue that this call creates begins: `earliest`, `latest` (default), a time "
            "(milliseconds since 1970 or ISO 8601), or the committed offsets of a consumer group."
        ),
    ] = UNSET

    EXAMPLES: ClassVar[list[Any]] = [
        {"max": 10, "wait_ms": 20000},
        {"topics": ["orders"], "start": "earliest", "max": 10},
        {"max": 10, "settle": {"accept": ["7e"]}, "attempt": "8d0c3f5e-1"},
    ]


# --- answers ------------------------------------------------------------------------------------------------


class LeasedRecord(RecordRead, gc=False):
    """A record of a lease."""

    delivery_count: Annotated[
        int, Meta(description="How often it was delivered, with this time; 1 is the first.")
    ]
    receipt: Annotated[str, Meta(description="Names this delivery of the record; opaque. Settle with it.")]

    EXAMPLES: ClassVar[list[Any]] = [_LEASED]


class ItemSettled(Struct, gc=False):
    """What became of one item."""

    outcome: Annotated[
        OutcomeName,
        Meta(
            description="`settled`; `already-settled`: done before; `late`: the lock had run out, but the record was "
            "not delivered again, so it is settled; `lease-lost`: another receiver has it, or had it; `gone`: the "
            "queue or the topic was deleted or sought since; `invalid`: no receipt or lease of this queue."
        ),
    ]
    records: Annotated[int, Meta(description="The records that it was: of a lease what was left of it.")]


class SettlementDone(Struct, gc=False):
    """What became of each item, in the order of the request, and the records by outcome."""

    counts: Annotated[dict[str, int], Meta(description="Records by outcome.")]
    accept: list[ItemSettled]
    release: list[ItemSettled]
    reject: list[ItemSettled]
    extend: list[ItemSettled]

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "counts": {"settled": 10},
            "accept": [{"outcome": "settled", "records": 10}],
            "release": [], "reject": [], "extend": [],
        }
    ]  # fmt: skip


class LeaseReceived(Struct, gc=False):
    """Some records, and until when they are yours. Without records there is no lease."""

    lease: Annotated[str | None, Meta(description="Names all of these records; null without records.")]
    lock_until: Annotated[
        str | None, Meta(description="Records that are not settled by then are delivered again.")
    ]
    lock_until_ms: int | None
    records: list[LeasedRecord]
    blocked: Annotated[
        Blocked | None,
        Meta(
            description="Why there are no records although some are not settled. `in-flight-limit`: too many are "
            "leased or delayed; `key-order`: records of the same keys come first; `paused`; `unserved`: another "
            "broker leads the partitions."
        ),
    ]
    settled: Annotated[
        SettlementDone | UnsetType, Meta(description="The outcomes of `settle`, if the request had it.")
    ] = UNSET

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "lease": "7f", "lock_until": "2025-01-31T12:00:30.000Z", "lock_until_ms": 1738324830000,
            "records": [_LEASED], "blocked": None,
        }
    ]  # fmt: skip


class PeekedRecords(Struct, gc=False):
    """Records that would be delivered next. They stay available."""

    records: list[RecordRead]

    EXAMPLES: ClassVar[list[Any]] = [{"records": RecordRead.EXAMPLES}]


class LeaseHeaders(Struct):
    """Header lines of an answer in lines, which has no place for them."""

    lease: Annotated[
        str | UnsetType, Meta(description="The lease of these records; missing without records.")
    ] = field(default=UNSET, name="Sluice-Lease")
    lock_until: Annotated[
        str | UnsetType, Meta(description="Records that are not settled by then are delivered again.")
    ] = field(default=UNSET, name="Sluice-Lock-Until")
    blocked: Annotated[str | UnsetType, Meta(description="`blocked` of the JSON.")] = field(
        default=UNSET, name="Sluice-Blocked"
    )
    settled: Annotated[
        str | UnsetType, Meta(description="The records of `settle` by outcome: `settled=9, late=1`.")
    ] = field(default=UNSET, name="Sluice-Settled")


# --- reading ------------------------------------------------------------------------------------------------

_decode_receive = msgspec.json.Decoder(ToReceive).decode
_decode_settlement = msgspec.json.Decoder(Settlement).decode


def to_receive(body: bytes) -> ToReceive:
    """Return the body of `:receive`. Raises Problem."""
    if not body:
        return ToReceive()
    wanted = _decoded(body, _decode_receive)
    if wanted.settle:
        check_settlement(wanted.settle, ("settle",))
    return wanted


def to_settle(body: bytes) -> Settlement:
    """Return the body of `:settle`. Raises Problem."""
    wanted = _decoded(body, _decode_settlement)
    check_settlement(wanted, ())
    return wanted


def _decoded(body: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        if not body.isascii():
            str(body, "utf-8")
        return decode(body)
    except _UNREADABLE as error:
        refuse_fault(fault_of(body, error))


def check_settlement(wanted: Settlement, at: tuple[str, ...]) -> None:
    """Refuse a settlement that is empty, too long, or whose items name nothing. Raises Problem with all faults."""
    count = len(wanted.accept) + len(wanted.release) + len(wanted.reject) + len(wanted.extend)
    if not count:
        refuse_fault(Fault("It settles nothing: no accept, release, reject or extend.", at, False))
    if count > MAX_SETTLE:
        raise Problem(
            "payload-too-large",
            f"A request settles at most {MAX_SETTLE} items, not {count}. Send the others in a request of their own, "
            "or name leases.",
            extra={"limit": MAX_SETTLE, "unit": "items"},
        )
    named: tuple[tuple[str, Sequence[ToRelease | ToReject | ToExtend]], ...] = (
        ("release", wanted.release),
        ("reject", wanted.reject),
        ("extend", wanted.extend),
    )
    faults = [
        Fault("An item names either a receipt or a lease.", (*at, name, index), False)
        for name, items in named
        for index, item in enumerate(items)
        if (item.receipt is UNSET) is (item.lease is UNSET)
    ]
    if faults:
        refuse_faults(faults)


def refuse_faults(faults: Sequence[Fault]) -> None:
    """Raise one Problem for all faults; at most 100 are listed."""
    errors = [field_error(one.detail, pointer=one.pointer, field=one.field) for one in faults[:100]]
    raise Problem("invalid-request", f"Field {faults[0].field!r}: {faults[0].detail}", errors=errors)


def settings_to_create(wanted: ToReceive) -> QueueSettings | None:
    """Return the settings of the queue that a receive creates; None if it creates none. Raises Problem."""
    topics, pattern = wanted.topics or (), wanted.pattern or None
    if topics and pattern:
        refuse_fault(Fault("A queue reads either topics or a pattern.", ("pattern",), False))
    if not topics and pattern is None:
        if wanted.start not in (UNSET, None):
            refuse_fault(
                Fault("Only a queue that is created has a start: name its topics.", ("start",), False)
            )
        return None
    start = wanted.start
    if isinstance(start, CommittedOffsetsOf):
        return QueueSettings(tuple(topics), pattern, Start(group=start.group))
    return QueueSettings(tuple(topics), pattern, start_of(None if start is UNSET else start))


def start_of(start: str | int | None) -> Start:
    """Return the place of a text or a time in milliseconds. Raises Problem."""
    if start is None or start in (EARLIEST, LATEST):
        return Start(str(start or LATEST))
    return Start(time_ms=parse_moment("start", str(start)))


# --- dead letters -------------------------------------------------------------------------------------------


class DeadLetterPlace(Struct, gc=False):
    """Where a dead letter is."""

    topic: str
    partition: int
    offset: int


class DeadLetterRead(Struct, gc=False):
    """A record that was given up: where it came from, why, and the record in the dead-letter topic."""

    topic: str
    partition: int
    offset: int
    delivery_count: int
    cause: Annotated[
        CauseName,
        Meta(
            description="`rejected` by a receiver; `limit`: released too often; `expired`: the lock of the last "
            "delivery ran out; `lost`: the log had deleted the record."
        ),
    ]
    reason: Annotated[str, Meta(description="What the receiver said when it rejected the record.")]
    pointer: Annotated[bool, Meta(description="Only a pointer to the record was written, no copy.")]
    dead_letter: DeadLetterPlace
    record: Annotated[RecordRead, Meta(description="Without the headers that say why (KIP-1191).")]


class DeadLetters(Struct, gc=False):
    """Some dead letters; with `next_page_token` there are more."""

    items: list[DeadLetterRead]
    next_page_token: str | None

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "items": [
                {
                    "topic": "orders", "partition": 0, "offset": 41, "delivery_count": 5, "cause": "limit",
                    "reason": "", "pointer": False,
                    "dead_letter": {"topic": "orders-dead", "partition": 0, "offset": 3},
                    "record": RecordRead.EXAMPLES[0],
                }
            ],
            "next_page_token": None,
        }
    ]  # fmt: skip
