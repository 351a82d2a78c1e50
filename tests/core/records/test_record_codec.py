"""The C extension and the plain Python fallback are one: equal bytes, equal records, equal refusals."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.records import record_codec
from core.records.batch import build_batch, read_header
from core.records.record import NewRecord
from core.records.record_codec import decode_records, encode_of_one_time, encode_records
from core.records.record_codec_pure import RecordFields, decode_records_pure, encode_records_pure
from tests.core.records.samples import NOW, headers, payloads, record_lists, refusal, simple_batch

int64 = st.integers(-(2**63), 2**63 - 1)
fields = st.tuples(st.integers(0, 2**31 - 1), st.one_of(st.just(-1), int64), payloads, payloads, headers)
ALL = 2**63


def test_the_extension_is_there() -> None:
    assert record_codec.extension() is not None


@given(base=st.one_of(st.just(-1), int64), records=st.lists(fields, max_size=8))
def test_both_encoders_write_the_same_bytes(base: int, records: list[RecordFields]) -> None:
    assert encode_records(base, records)[61:] == encode_records_pure(base, records)[61:]


@given(records=record_lists)
def test_both_decoders_read_the_same_records(records: list[NewRecord]) -> None:
    batch = build_batch(records, now_ms=NOW)
    header, body = read_header(batch), bytes(batch[61:])
    assert list(decode_records(header, body, 0, ALL)) == list(decode_records_pure(header, body, 0, ALL))


@given(data=st.data())
@settings(max_examples=500)
def test_both_decoders_agree_on_mutated_records(data: st.DataObject) -> None:
    records = data.draw(record_lists)
    batch = build_batch(records, now_ms=NOW)
    header, body = read_header(batch), batch[61:]
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    header = header._replace(record_count=data.draw(st.integers(0, len(records) + 1)))
    first, limit = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0, 1, 2, ALL]))
    answers, refusals = [], []
    for decode in (decode_records, decode_records_pure):
        refusals.append(
            refusal(lambda decode=decode: answers.append(list(decode(header, body, first, limit))))
        )
    assert (refusals[0] is None) == (refusals[1] is None), refusals
    if refusals[0] is None:
        assert answers[0] == answers[1]
    else:
        assert refusals[0].code == refusals[1].code


@given(records=record_lists)
@settings(max_examples=50)
def test_the_pure_reader_of_aiokafka_agrees(records: list[NewRecord]) -> None:
    batch = build_batch(records, now_ms=NOW)
    header = read_header(batch)
    theirs = [(r.offset, r.key, r.value, tuple(r.headers)) for r in _DefaultRecordBatchPy(batch)]
    ours = decode_records_pure(header, batch[61:], 0, ALL)
    assert theirs == [(r.offset, r.key, r.value, r.headers) for r in ours]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_varint_that_runs_over_the_end_is_refused(cut: int) -> None:
    _, header = simple_batch(1)
    for body in (
        b"\xff" * cut,
        b"\x10\x00\x00\x00" + b"\x80" * cut,
        b"\x0e\x00\x00\x00\x01\x01" + b"\x80" * cut,
    ):
        for decode in (decode_records, decode_records_pure):
            assert refusal(lambda decode=decode, body=body: list(decode(header, body, 0, ALL))) is not None


def test_a_header_name_that_is_not_utf8_is_read_with_replacements() -> None:
    batch = build_batch([NewRecord(key=b"k", value=b"v", headers=(("name", b"1"),))], now_ms=NOW)
    body = batch[61:].replace(b"name", b"n\xffme")
    for decode in (decode_records, decode_records_pure):
        assert next(decode(read_header(batch), body, 0, ALL)).headers == (("n\ufffdme", b"1"),)


def test_without_the_extension_batches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [NewRecord(key=b"a", value=b"b", headers=(("h", None),), timestamp=5), NewRecord()]
    with_extension = build_batch(records, now_ms=NOW)
    monkeypatch.setattr(record_codec, "extension", lambda: None)
    assert build_batch(records, now_ms=NOW) == with_extension
    header = read_header(with_extension)
    assert len(list(decode_records(header, with_extension[61:], 0, ALL))) == 2


@pytest.mark.parametrize("timestamp", [-1, 0, 1_738_324_800_000])
def test_records_of_one_time_are_encoded_as_any_others(timestamp: int) -> None:
    records = [
        NewRecord(b"k", b"v"),
        NewRecord(None, b""),
        NewRecord(b"", None, (("h", b"1"), ("h", None))),
        NewRecord(value=b"x" * 300),
    ]
    fields = [(i, timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
    assert encode_of_one_time(timestamp, records)[61:] == encode_records(timestamp, fields)[61:]
    with pytest.raises(BrokerError) as refused:
        encode_of_one_time(timestamp, [NewRecord(headers=(("\ud800", b""),))])
    assert refused.value.code is ErrorCode.INVALID_RECORD
