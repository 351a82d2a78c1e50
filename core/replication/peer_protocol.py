"""What brokers say to each other about roles: one question, one answer, for many partitions at once.

Sent to the Kafka port under an API key of our own, after an ordinary request header; the body is MessagePack.

    ASK     what is your end, which leader do you follow? nothing changes
    PAUSE   take no appends for a moment, and answer      the leader lets another one catch up and take over
    VOTE    promise this epoch                            serve no older one any more
    BEGIN   I lead in this epoch, from this offset on     follow me

An answer leaves only after what it promises is on the disk. Questions and answers also say where the clients of the
broker that sends them connect to it (`--advertised`); older versions do not send it, and ignore it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

# Partitions in one question; more are asked for in the next one.
MAX_ITEMS = 10_000
# A name of the DNS has 253 characters at most.
Host = Annotated[str, msgspec.Meta(max_length=253)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


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
    """Asked by the broker `broker_id`, whose advertised address is `host` and `port`; an empty host is none."""

    kind: Kind
    broker_id: int
    items: list[Item]
    host: Host = ""
    port: Port = 0


class State(msgspec.Struct, array_like=True):
    """The state of one partition on one broker. `granted`: it has promised the epoch, or begun to follow it."""

    known: bool = False
    epoch: int = -1
    complete: int = -1
    end: int = -1
    start: int = -1
    leads: bool = False
    granted: bool = False


class Answer(msgspec.Struct, array_like=True):
    """The states, in the order of the question's items; `host` and `port` as in a question."""

    broker_id: int
    states: list[State]
    host: Host = ""
    port: Port = 0


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
