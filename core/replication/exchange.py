"""What brokers say to each other about roles: one question, one answer, for many partitions at once.

Sent to the Kafka port under an API key of our own, behind an ordinary request header; the body is MessagePack.

    ASK     how far are you, whom do you follow?          nothing changes
    PAUSE   take no appends for a moment, and answer      the leader lets another one catch up and take over
    VOTE    promise this epoch                            serve no older one any more
    BEGIN   I lead in this epoch, from this offset on     follow me

An answer leaves only after what it promises is on the disk.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

# Partitions in one question; more are asked for in the next one.
MAX_ITEMS = 10_000


class Kind(IntEnum):
    """What a question asks."""

    ASK = 0
    PAUSE = 1
    VOTE = 2
    BEGIN = 3


class Item(msgspec.Struct, array_like=True):
    """One partition of a question, by topic id (16 bytes). `epoch` and `start` belong to VOTE and BEGIN."""

    topic_id: bytes
    partition: int
    epoch: int = -1
    start: int = -1


class Question(msgspec.Struct, array_like=True):
    """Asked by the broker `broker_id`."""

    kind: Kind
    broker_id: int
    items: list[Item]


class State(msgspec.Struct, array_like=True):
    """How a broker stands to one partition. `granted`: it has promised, or begun to follow, what was asked."""

    known: bool = False
    epoch: int = -1
    complete: int = -1
    end: int = -1
    start: int = -1
    leads: bool = False
    granted: bool = False


class Answer(msgspec.Struct, array_like=True):
    """The states, in the order of the question's items."""

    broker_id: int
    states: list[State]


_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(Question)
_answers = msgspec.msgpack.Decoder(Answer)


def encode(message: Question | Answer) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def decode_question(data: bytes | memoryview) -> Question:
    """A question; ValueError if it is none, or has more than `MAX_ITEMS`."""
    question = _questions.decode(data)
    if len(question.items) > MAX_ITEMS:
        raise ValueError(f"{len(question.items)} partitions in one question")
    return question


def decode_answer(data: bytes | memoryview) -> Answer:
    """An answer; ValueError if it is none."""
    return _answers.decode(data)
