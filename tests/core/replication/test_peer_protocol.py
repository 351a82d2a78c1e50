"""Questions and answers between brokers: there and back, and bytes that are neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.replication.peer_protocol import (
    MAX_ITEMS,
    Answer,
    Item,
    Kind,
    Question,
    State,
    decode_answer,
    decode_question,
    encode,
)


def test_a_question_and_its_answer_come_back() -> None:
    question = Question(Kind.VOTE, 2, [Item(b"x" * 16, 3, 34), Item(b"y" * 16, 0, 34, 7)])
    assert decode_question(encode(question)) == question
    answer = Answer(1, [State(), State(True, 34, 1, 99, 5, False, True)])
    assert decode_answer(encode(answer)) == answer


@given(st.binary(max_size=200))
def test_any_bytes_are_a_question_or_a_value_error(data: bytes) -> None:
    for decode in (decode_question, decode_answer):
        try:
            decode(data)
        except ValueError:
            continue


def test_too_many_partitions_are_refused() -> None:
    question = Question(Kind.ASK, 1, [Item(b"x" * 16, 0)] * (MAX_ITEMS + 1))
    with pytest.raises(ValueError, match="partitions in one question"):
        decode_question(encode(question))
