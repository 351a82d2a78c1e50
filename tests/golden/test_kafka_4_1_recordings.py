"""Recordings of a Kafka 4.1, made by tests/peers/record.py: decoded and encoded again they are the same bytes."""

from __future__ import annotations

import json

import pytest

from core.protocol.codec import decode_request, decode_response, encode_request
from core.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from tests.core.protocol.samples import joined_response
from tests.golden.traffic import Row, golden_file, rows

NAMES = ("acls", "transactions", "consumer-groups", "share-groups")
ROWS = [row for name in NAMES for row in rows(f"kafka-4.1-{name}.json")]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_each_row_says_what_came(name: str) -> None:
    file = golden_file(f"kafka-4.1-{name}.json")
    assert file.stat().st_size <= 150_000
    for row in json.loads(file.read_text()):
        assert row["case"]
        assert ("response" in row) != ("after" in row)


def test_the_recordings_are_all_there() -> None:
    assert len(ROWS) == 677
    assert len({(row.key, row.version) for row in ROWS}) == 136


def test_a_request_is_written_as_it_was_sent() -> None:
    for row in ROWS:
        header, position = decode_request_header(row.request)
        assert (header.api_key, header.api_version) == (row.key, row.version), row.name
        body = decode_request(row.key, row.version, row.request, position)
        again = encode_request_header(row.key, row.version, header.correlation_id, header.client_id)
        assert again + encode_request(row.key, row.version, body) == row.request, row.name


def test_a_response_is_written_as_kafka_wrote_it() -> None:
    for row in ROWS:
        if row.response is not None:
            assert _again(row) == row.response, row.name


def _again(row: Row) -> bytes:
    assert row.response is not None
    correlation_id, position = decode_response_header(row.key, row.version, row.response)
    body = decode_response(row.key, row.version, row.response, position)
    return encode_response_header(row.key, row.version, correlation_id) + joined_response(
        row.key, row.version, body
    )
