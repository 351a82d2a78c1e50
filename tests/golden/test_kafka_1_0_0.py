"""Traffic of Kafka 1.0.0 and 0.8.2.1: the first versions of the first APIs, as bytes there and back."""

from __future__ import annotations

import pytest

from core.protocol.apis import API_VERSIONS, APIS
from core.protocol.codec import decode_request, decode_response, encode_request
from core.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from tests.core.protocol.samples import joined_response
from tests.golden.traffic import Row, rows

ROWS = [*rows("kafka-1.0.0.json"), *rows("kafka-0.8.2.1.json")]
KNOWN = [row for row in ROWS if row.key in APIS and APIS[row.key].has(row.version)]
UNKNOWN = [row for row in ROWS if row not in KNOWN]
ANSWERED = [row for row in ROWS if row.response is not None]


def test_the_traffic_is_all_there() -> None:
    assert (len(KNOWN), len(UNKNOWN)) == (120, 5)
    assert {row.key for row in KNOWN} == {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18}


@pytest.mark.parametrize("row", KNOWN, ids=str)
def test_an_old_request_is_written_as_the_client_wrote_it(row: Row) -> None:
    header, position = decode_request_header(row.request)
    assert (header.api_key, header.api_version) == (row.key, row.version)
    body = decode_request(row.key, row.version, row.request, position)
    again = encode_request_header(row.key, row.version, header.correlation_id, header.client_id)
    assert again + encode_request(row.key, row.version, body) == row.request


@pytest.mark.parametrize("row", UNKNOWN, ids=str)
def test_a_request_of_an_unknown_api_or_version_shows_its_correlation_id(row: Row) -> None:
    header, _ = decode_request_header(row.request)
    assert (header.api_key, header.api_version, header.client_id) == (row.key, row.version, "cap")
    assert header.correlation_id == int.from_bytes(row.request[4:8], "big")


@pytest.mark.parametrize("row", ANSWERED, ids=str)
def test_an_old_response_is_written_as_kafka_wrote_it(row: Row) -> None:
    assert row.response is not None
    # Kafka 1.0.0 knew ApiVersions 0 and 1, and answers everything above as version 0 with error 35.
    version = 0 if row.key == API_VERSIONS and row.version > 1 else row.version
    correlation_id, position = decode_response_header(row.key, version, row.response)
    body = decode_response(row.key, version, row.response, position)
    again = encode_response_header(row.key, version, correlation_id)
    assert again + joined_response(row.key, version, body) == row.response
