"""What is written by hand gives what the compiled functions give, byte for byte and error for error."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from core.protocol import by_hand
from core.protocol.codec import encode_request
from core.protocol.decoding import compile_decoder
from core.protocol.encoding import compile_encoder
from core.protocol.frame import MAX_ELEMENTS
from core.protocol.messages import fetch, produce
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.primitives import ProtocolError
from core.protocol.schema import Piece
from core.types import FileSlice
from tests.core.protocol.samples import Maker

NAMES = ("", "t", "größer", "x" * 126, "y" * 127, "z" * 249)
SIZES = (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 100_000)
ID = UUID(int=77)


class NoFile:
    def fileno(self) -> int:
        raise AssertionError("nobody reads here")


def never(*_arguments: object) -> list[Piece]:
    raise AssertionError("the usual shape went to the general function")


def request(name: str, size: int) -> ProduceRequest:
    data = [PartitionProduceData(3, memoryview(bytes(size)))]
    return ProduceRequest(None, -1, 30_000, [TopicProduceData(name, ID, data)])


def outcome(function, *arguments):  # type: ignore[no-untyped-def]
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("version", range(3, 14))
def test_a_usual_produce_request_is_read_by_hand(version: int) -> None:
    hand = by_hand.produce_request_decoder(version, never)  # type: ignore[arg-type]
    general = compile_decoder(ProduceRequest, version, version >= 9).run
    for name in NAMES:
        for size in SIZES:
            if version in range(9, 13) and len(name.encode()) > 126:
                continue  # left to the general function
            raw = b"head" + encode_request(0, version, request(name, size))
            arguments = (memoryview(raw), 4, len(raw), MAX_ELEMENTS)
            assert hand(*arguments) == general(*arguments)


@pytest.mark.parametrize("version", range(14))
def test_any_other_produce_request_is_read_as_the_general_function_reads_it(version: int) -> None:
    general = compile_decoder(ProduceRequest, version, version >= 9).run
    hand = by_hand.produce_request_decoder(version, general)
    random = Random(version)
    samples = [Maker(seed, longest=600).message(ProduceRequest, version) for seed in range(8)]
    for message in [request("topic", 200), *samples]:
        raw = encode_request(0, version, message)
        for changed in _variants(raw, random):
            arguments = (memoryview(changed), 0, len(changed), MAX_ELEMENTS)
            assert outcome(hand, *arguments) == outcome(general, *arguments)


def _variants(raw: bytes, random: Random) -> list[bytes]:
    """Whole, with something behind, cut anywhere near the ends, and with single bytes changed."""
    found = [raw, raw + b"\0", raw + b"abc", *(raw[:end] for end in range(min(len(raw), 60)))]
    found += [raw[:-cut] for cut in range(1, 5)]
    for _ in range(150):
        changed = bytearray(raw)
        near = min(len(raw), 50)
        changed[random.choice((random.randrange(near), len(raw) - 1 - random.randrange(near)))] = (
            random.choice((0, 1, 2, 127, 128, 255))
        )
        found.append(bytes(changed))
    return found


@pytest.mark.parametrize("version", range(14))
def test_a_produce_response_is_written_as_the_general_function_writes_it(version: int) -> None:
    general = compile_encoder(produce.ProduceResponse, version, version >= 9).run
    hand = by_hand.produce_response_encoder(version, general)
    usual = by_hand.produce_response_encoder(version, never) if version >= 5 else hand
    for name in NAMES:
        partition = produce.PartitionProduceResponse(3, 6, 2**40, 5, 7)
        topic = produce.TopicProduceResponse(name, ID, [partition])
        message = produce.ProduceResponse([topic], 9)
        assert b"".join(usual(message)) == b"".join(general(message))  # type: ignore[arg-type]
    for seed in range(30):
        other = Maker(seed).message(produce.ProduceResponse, version)
        assert b"".join(hand(other)) == b"".join(general(other))  # type: ignore[arg-type]


def answers() -> list[fetch.FetchResponse]:
    """Fetch answers with records of every kind and size, and without."""
    pieces: list[object] = [None, [], [b"a", FileSlice(NoFile(), 1, 9), memoryview(bytes(600))]]
    pieces += [bytes(size) for size in SIZES] + [memoryview(bytes(size)) for size in SIZES]
    pieces += [
        FileSlice(NoFile(), 0, size) for size in (*SIZES, 2**21 - 2, 2**21 - 1, 2**21, 2**28, 2**31 - 2)
    ]
    partitions = [
        fetch.PartitionData(index, 1, 2, 3, 4, aborted_transactions=aborted, records=records)  # type: ignore[arg-type]
        for aborted in (None, [])
        for index, records in enumerate(pieces)
    ]
    topics = [fetch.FetchableTopicResponse(name, ID, partitions[cut:]) for cut, name in enumerate(NAMES)]
    return [
        fetch.FetchResponse(1, 2, 3, topics),
        fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", ID, partitions[:1])]),
        fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", ID, [])]),
        fetch.FetchResponse(),
    ]


def flat(parts: list[Piece]) -> list[object]:
    """Pieces with neighbouring bytes joined, so that only where files stand in between is compared."""
    found: list[object] = [b""]
    for part in parts:
        if isinstance(part, FileSlice):
            found += [part, b""]
        else:
            found[-1] += bytes(part)  # type: ignore[operator]
    return found


@pytest.mark.parametrize("version", range(12, 19))
def test_a_usual_fetch_response_is_written_by_hand(version: int) -> None:
    general = compile_encoder(fetch.FetchResponse, version, True).run
    hand = by_hand.fetch_response_encoder(version, never)
    for message in answers():
        assert flat(hand(message)) == flat(general(message))


@pytest.mark.parametrize("version", range(19))
def test_any_fetch_response_is_written_as_the_general_function_writes_it(version: int) -> None:
    general = compile_encoder(fetch.FetchResponse, version, version >= 12).run
    hand = by_hand.fetch_response_encoder(version, general)
    for seed in range(30):
        message = Maker(seed).message(fetch.FetchResponse, version)
        assert flat(hand(message)) == flat(general(message))


@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_fetch_response_that_cannot_be_written_fails_as_in_the_general_function(version: int) -> None:
    general = compile_encoder(fetch.FetchResponse, version, version >= 12).run
    hand = by_hand.fetch_response_encoder(version, general)
    partition = fetch.PartitionData(partition_index=2**31)
    message = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", ID, [partition])])
    expected = outcome(general, message)
    assert outcome(hand, message) == expected and expected[0] is not ProtocolError
