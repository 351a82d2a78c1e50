"""Bodies of transactions in one request → what the broker commits. Every refusal names the place in the body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from app.errors import Problem, field_error
from app.http.json_errors import Fault, fault_of, refuse_fault
from app.native.one_shot_schemas import (
    BatchToAcknowledge,
    OffsetToCommit,
    OutputOfBatch,
    TopicRecords,
    TransactionToCommit,
)
from app.native.produce_body import ProduceBody, TextRecord
from app.native.record_schemas import RecordToWrite
from core.config import Config
from core.records.record import NewRecord
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER, NO_OFFSET
from core.vocabulary.one_shot import AckToSettle, OneShot
from core.vocabulary.settlements import ANY_OFFSET, OffsetToSettle


class _Texts(Struct, forbid_unknown_fields=True):
    """A body whose records have keys and values of text alone, as most have."""

    records: dict[str, list[TextRecord]] = {}
    offsets: list[OffsetToCommit] = []
    acks: list[BatchToAcknowledge] = []


class _Raws(Struct):
    """The parts of a poll that belong to its output, as they were sent."""

    records: Raw | UnsetType = UNSET
    offsets: Raw | UnsetType = UNSET


class _Counted(Struct):
    records: dict[str, list[Raw]] = {}


class _ByTopic(Struct):
    records: dict[str, Raw] = {}


class Output(NamedTuple):
    """What a poll commits with the batch before, and its bytes, which tell it from another one."""

    wanted: OneShot
    identity: bytes


_decode_texts = msgspec.json.Decoder(_Texts).decode
_decode_whole = msgspec.json.Decoder(TransactionToCommit).decode
_decode_output = msgspec.json.Decoder(OutputOfBatch).decode
_decode_raws = msgspec.json.Decoder(_Raws).decode
_decode_counted = msgspec.json.Decoder(_Counted).decode
_decode_by_topic = msgspec.json.Decoder(_ByTopic).decode
_decode_records = msgspec.json.Decoder(TopicRecords).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# The most refusals that one answer lists.
MAX_ERRORS = 100


class OneShotBody:
    """Reads such bodies under the limits of one configuration."""

    def __init__(self, config: Config) -> None:
        self._most = config.http_max_records
        self._body = ProduceBody(max_depth=config.http_max_json_depth, max_records=self._most)

    def whole(self, body: bytes) -> OneShot:
        """The body of POST /transactions. Raises Problem."""
        self._check_count(body)
        try:
            if not body.isascii():
                str(body, "utf-8")
            if (texts := _texts(body)) is not None:
                return self._checked(_of_texts(texts.records), texts.offsets, texts.acks)
            shape = _decode_whole(body)
        except _UNREADABLE as error:
            refuse_fault(_fault(body, error))
        return self._checked(self._converted(shape.records), shape.offsets, shape.acks)

    def output(self, body: bytes, group: str, consumer: str, token: str) -> Output:
        """The records and offsets in the body of a poll, with the batch that they acknowledge. Raises Problem."""
        self._check_count(body)
        try:
            shape, raws = _decode_output(body), _decode_raws(body)
        except _UNREADABLE as error:
            refuse_fault(_fault(body, error))
        acks = [BatchToAcknowledge(group, consumer, token)]
        identity = b"\n".join(b"" if one is UNSET else bytes(one) for one in (raws.records, raws.offsets))
        return Output(self._checked(self._converted(shape.records), shape.offsets, acks), identity)

    def _check_count(self, body: bytes) -> None:
        """Refuse too many records before each of them costs memory."""
        if body.count(b"{") <= self._most:
            return
        try:
            counted = _decode_counted(body)
        except _UNREADABLE:
            return
        if sum(map(len, counted.records.values())) > self._most:
            raise Problem(
                "payload-too-large",
                f"A request takes at most {self._most} records.",
                extra={"limit": self._most, "unit": "records"},
            )

    def _converted(self, records: Mapping[str, Sequence[RecordToWrite]]) -> dict[str, Sequence[NewRecord]]:
        """Return the records as the broker takes them. Raises Problem with all that cannot be taken."""
        converted: dict[str, Sequence[NewRecord]] = {}
        problems: list[Problem] = []
        for topic, items in records.items():
            try:
                converted[topic] = self._body.convert(items, ("records", topic))
            except Problem:
                problems += self._problems(topic, items)
        if problems:
            problems[0].errors = [one for problem in problems for one in problem.errors][:MAX_ERRORS]
            raise problems[0]
        return converted

    def _problems(self, topic: str, items: Sequence[RecordToWrite]) -> Iterable[Problem]:
        for index, item in enumerate(items):
            try:
                self._body.convert((item,), ("records", topic), index)
            except Problem as problem:
                yield problem

    def _checked(
        self,
        records: dict[str, Sequence[NewRecord]],
        offsets: Sequence[OffsetToCommit],
        acks: Sequence[BatchToAcknowledge],
    ) -> OneShot:
        if not (records or offsets or acks):
            refuse_fault(Fault("The body commits nothing: no record, no offset, no batch.", (), False))
        faults = [
            Fault("The list of records is empty.", ("records", topic), False)
            for topic, some in records.items()
            if not some
        ]
        faults += _repeated("offsets", [(one.group, one.topic, one.partition) for one in offsets])
        faults += _repeated("acks", [(one.group, one.consumer) for one in acks])
        for index, one in enumerate(offsets):
            if one.generation in (UNSET, None) and (one.member or one.instance):
                faults.append(
                    Fault("A member commits with its generation.", ("offsets", index, "generation"), False)
                )
        if faults:
            _refuse(faults)
        return OneShot(
            records,
            [_offset(one) for one in offsets],
            [AckToSettle(one.group, one.consumer, one.ack) for one in acks],
        )


def _fault(body: bytes, error: Exception) -> Fault:
    """Return the fault of a body. msgspec does not name the topic to whose records its path leads."""
    fault = fault_of(body, error)
    if fault.path[:2] != ("records", "..."):
        return fault
    for topic, raw in _decode_by_topic(body).records.items():
        try:
            _decode_records(raw)
        except msgspec.ValidationError:
            return fault._replace(path=("records", topic, *fault.path[2:]))
    return fault


def _texts(body: bytes) -> _Texts | None:
    try:
        return _decode_texts(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _of_texts(records: Mapping[str, Sequence[TextRecord]]) -> dict[str, Sequence[NewRecord]]:
    return {
        topic: [
            NewRecord(
                None if item.key is None else item.key.encode(),
                None if item.value is None else item.value.encode(),
            )
            for item in items
        ]
        for topic, items in records.items()
    }


def _offset(one: OffsetToCommit) -> OffsetToSettle:
    expected = one.expected
    return OffsetToSettle(
        one.group,
        one.topic,
        one.partition,
        one.offset,
        ANY_OFFSET if expected is UNSET else NO_OFFSET if expected is None else expected,
        one.metadata,
        one.generation if isinstance(one.generation, int) else NO_GENERATION,
        one.member or NO_MEMBER,
        one.instance or None,
    )


def _repeated(name: str, keys: Sequence[Any]) -> list[Fault]:
    seen: set[Any] = set()
    faults = []
    for index, key in enumerate(keys):
        if key in seen:
            faults.append(Fault("It occurs in the body twice.", (name, index), False))
        seen.add(key)
    return faults


def _refuse(faults: Sequence[Fault]) -> None:
    errors = [field_error(one.detail, pointer=one.pointer, field=one.field) for one in faults[:MAX_ERRORS]]
    raise Problem("invalid-request", f"Field {faults[0].field!r}: {faults[0].detail}", errors=errors)
