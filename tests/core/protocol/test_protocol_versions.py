"""The answer of KIP-35's draft: its bytes, and which versions it calls deprecated."""

from __future__ import annotations

import pytest

from core.protocol.apis import APIS
from core.protocol.codec import decode_response as decode
from core.protocol.header import decode_response_header
from core.protocol.primitives import ProtocolError
from core.protocol.protocol_versions import decode_response, encode_response, own_support, support
from core.types import ApiSupport
from tests.golden.traffic import rows

# Kafka 4 names the first versions of these two for librdkafka, which would take it for an older broker otherwise.
NAMED_FOR_LIBRDKAFKA = {0, 11}
KAFKA_4 = {
    api.api_key: api.min_version
    for row in rows("kafka-4.1.0.json")
    if row.key == 18 and row.response
    for api in decode(
        18, row.version, row.response, decode_response_header(18, row.version, row.response)[1]
    ).api_keys
}


def test_the_bytes_are_those_of_the_draft() -> None:
    apis = [ApiSupport(2, "OffsetRequest", (2,), (0, 1)), ApiSupport(1, "F", (), ())]
    body = bytes.fromhex(
        "00000002"
        "0002 000d 4f666673657452657175657374 00000001 0002 00000002 0000 0001"
        "0001 0001 46 00000000 00000000"
    )
    assert encode_response(apis) == body
    assert decode_response(body) == apis


@pytest.mark.parametrize("cut", range(1, 47))
def test_a_cut_answer_is_refused(cut: int) -> None:
    body = encode_response([ApiSupport(2, "OffsetRequest", (2,), (0, 1)), own_support(32_000)])
    with pytest.raises(ProtocolError):
        decode_response(body[:-cut])
    with pytest.raises(ProtocolError):
        decode_response(body + b"x")


def test_versions_come_in_reverse_order_of_preference_and_the_deprecated_apart() -> None:
    assert support(0, 0, 13) == (0, "ProduceRequest", tuple(range(3, 14)), (0, 1, 2))
    assert support(18, 0, 4) == (18, "ApiVersionsRequest", (0, 1, 2, 3, 4), ())
    assert own_support(32_035) == (32_035, "ProtocolVersionRequest", (0,), ())


@pytest.mark.parametrize("key", sorted(APIS.keys() & KAFKA_4.keys() - NAMED_FOR_LIBRDKAFKA))
def test_deprecated_are_the_versions_that_kafka_4_serves_no_more(key: int) -> None:
    api = APIS[key]
    assert support(key, api.min_version, api.max_version).versions[0] == KAFKA_4[key], api.name
