"""Traffic of a real Kafka 4.1.0 and today's clients: what is decoded and encoded again is the same bytes."""

from __future__ import annotations

import pytest

from core.listeners.kafka.dispatch import HANDLERS
from core.protocol.apis import API_VERSIONS
from core.protocol.codec import decode_request, decode_response, encode_request
from core.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from tests.core.protocol.samples import joined_response
from tests.golden.traffic import Row, rows

ROWS = rows("kafka-4.1.0.json")


# What is served here and not advertised by that release: versions of later ones.
# ListOffsets, OffsetCommit, OffsetFetch, DescribeLogDirs, ShareFetch, ShareAcknowledge, DescribeShareGroupOffsets
LATER = {2: 11, 8: 10, 9: 10, 35: 5, 78: 2, 79: 2, 90: 1}


def test_nothing_is_advertised_that_kafka_keeps_back() -> None:
    """Kafka knows InitProducerId v6 (KIP-939) and does not advertise it: it is unfinished."""
    tables = [row for row in ROWS if row.key == API_VERSIONS]
    assert tables
    for row in tables:
        assert row.response is not None
        _, position = decode_response_header(row.key, row.version, row.response)
        body = decode_response(row.key, row.version, row.response, position)
        newest = {api.api_key: api.max_version for api in body.api_keys} | LATER
        ours = {key: handler.versions[1] for key, handler in HANDLERS.items()}
        assert {key: last for key, last in ours.items() if last > newest[key]} == {}


def test_the_traffic_is_all_there() -> None:
    assert len(ROWS) == 105
    assert len({(row.key, row.version) for row in ROWS}) == 79


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_request_is_written_as_the_client_wrote_it(row: Row) -> None:
    header, position = decode_request_header(row.request)
    assert (header.api_key, header.api_version) == (row.key, row.version)
    body = decode_request(row.key, row.version, row.request, position)
    again = encode_request_header(row.key, row.version, header.correlation_id, header.client_id)
    assert again + encode_request(row.key, row.version, body) == row.request


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_response_is_written_as_kafka_wrote_it(row: Row) -> None:
    assert row.response is not None
    correlation_id, position = decode_response_header(row.key, row.version, row.response)
    body = decode_response(row.key, row.version, row.response, position)
    again = encode_response_header(row.key, row.version, correlation_id)
    assert again + joined_response(row.key, row.version, body) == row.response
