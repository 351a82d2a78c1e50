"""The request for one record."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BrokerError
from core.queues.webhooks.requests import check_headers, request_of, webhook_id
from core.queues.webhooks.signatures import Secret
from core.records.record import CREATE_TIME, Headers, Record
from core.types import TopicPartition
from core.vocabulary.queues import Leased, Receipt
from core.vocabulary.webhooks import Format

SECRET = Secret("whsec_" + "A" * 32)
RECEIPT = Receipt(5, 9, UUID(int=7), 3, 41)
receipts = st.builds(
    Receipt, st.integers(), st.integers(), st.uuids(), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
)


def leased(value: bytes | None, key: bytes | None = None, headers: Headers = ()) -> Leased:
    record = Record(41, 1_700_000_000_000, CREATE_TIME, key, value, headers)
    return Leased(TopicPartition("orders", 3), record, 2, RECEIPT)


def headers_of(one: Leased, form: Format) -> tuple[dict[str, str], bytes]:
    request = request_of(one, "msg_x", form, [("x-own", "1")], [SECRET], 1_700_000_000_999)
    assert len(dict(request.headers)) == len(request.headers), "a header is a duplicate"
    return dict(request.headers), request.body


@given(receipts, receipts, st.text(min_size=1), st.text(min_size=1))
def test_an_id_is_of_one_record_and_of_every_delivery_of_it(
    one: Receipt, two: Receipt, q: str, r: str
) -> None:
    same = (one.topic_id, one.partition, one.offset, q) == (two.topic_id, two.partition, two.offset, r)
    assert (webhook_id(q, one) == webhook_id(r, two)) is same
    assert webhook_id(q, one) == webhook_id(q, one._replace(nonce=1, lease=2))
    assert webhook_id(q, one).isascii() and "." not in webhook_id(q, one)


def test_the_body_of_standard_webhooks_has_the_record_as_the_api_has_it() -> None:
    headers, body = headers_of(leased(b'{"a":1}', b"k", (("h", b"v"),)), Format.STANDARD)
    assert json.loads(body) == {
        "type": "sluice.record",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "data": {
            "topic": "orders", "partition": 3, "offset": 41, "timestamp": "2023-11-14T22:13:20.000Z",
            "timestamp_ms": 1_700_000_000_000, "key": "k", "key_encoding": "utf8", "value": {"a": 1},
            "value_encoding": "json", "headers": [{"name": "h", "value": "v", "encoding": "utf8"}],
        },
    }  # fmt: skip
    assert headers["sluice-attempt"] == "2" and headers["sluice-offset"] == "41" and headers["x-own"] == "1"
    assert headers["webhook-timestamp"] == "1700000000"


@pytest.mark.parametrize(
    ("value", "shown", "encoding"),
    [
        (None, None, None),
        (b"", "", "utf8"),
        (b"null", "null", "utf8"),
        (b"\xff", "/w==", "base64"),
        (b"7", 7, "json"),
    ],
)
def test_values_that_are_no_json(value: bytes | None, shown: object, encoding: str | None) -> None:
    data = json.loads(headers_of(leased(value), Format.STANDARD)[1])["data"]
    assert (data["value"], data["value_encoding"]) == (shown, encoding)


def test_raw_has_the_bytes_of_the_value() -> None:
    headers, body = headers_of(leased(b"\xff\x00", "ä/b".encode()), Format.RAW)
    assert (body, headers["content-type"], headers["sluice-key"]) == (
        b"\xff\x00",
        "application/octet-stream",
        "%C3%A4%2Fb",
    )
    headers, body = headers_of(leased(None, b"k" * 5000), Format.RAW)
    assert (body, "content-type" in headers, "sluice-key" in headers) == (b"", False, False)


@given(
    st.binary() | st.none(), st.binary() | st.none(), st.sampled_from(list(Format)),
    st.lists(
        st.tuples(st.text(max_size=20) | st.sampled_from(["content-type", "ce_id", "ce_x"]), st.binary() | st.none())
    ),
)  # fmt: skip
def test_no_record_writes_a_header_line_of_its_own(
    value: bytes | None, key: bytes | None, form: Format, headers: list[tuple[str, bytes | None]]
) -> None:
    found, _ = headers_of(leased(value, key, tuple(headers)), form)
    for name, text in found.items():
        assert name.isascii() and text.isascii()
        assert not set(name + text) & set("\r\n\0")


@pytest.mark.parametrize(
    "headers",
    [
        [("a b", "x")], [("", "x")], [("a:", "x")], [("x", "a\r\nb: c")], [("x", "ä")], [("x", " a")], [("x", "a\0")],
        [("Host", "x")], [("content-length", "1")], [("Transfer-Encoding", "chunked")], [("connection", "x")],
        [("webhook-id", "x")], [("ce-id", "x")], [("sluice-topic", "x")], [("a", "1"), ("A", "2")],
        [("x", "secret" * 1000)], [(f"x-{n}", "1") for n in range(21)],
    ],
)  # fmt: skip
def test_a_header_that_would_change_the_request_is_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(BrokerError) as caught:
        check_headers(headers)
    assert "secret" not in caught.value.message


def test_headers_of_users_are_taken() -> None:
    check_headers([("Authorization", "Bearer a.b-c"), ("x-empty", ""), ("X_Y", "a b\tc")])
