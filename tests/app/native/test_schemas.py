"""The shapes of the control routes refuse what they do not know."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.native.schemas import TopicChange, TopicToCreate, Truncation


@pytest.mark.parametrize("shape", [TopicToCreate, TopicChange, Truncation])
def test_an_unknown_member_is_refused(shape: Any) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        shape.model_validate({"partitions": [{"partition": 0}] if shape is Truncation else 1, "other": 1})


@pytest.mark.parametrize("value", ["1", 1.0, True, 0, 2**31])
def test_a_number_of_partitions_is_a_whole_number(value: object) -> None:
    with pytest.raises(ValidationError):
        TopicToCreate.model_validate({"partitions": value})


@pytest.mark.parametrize("value", ["1", 1, 1.5, True, None])
def test_a_setting_keeps_its_type(value: object) -> None:
    configs = TopicToCreate.model_validate({"configs": {"a": value}}).configs
    assert configs is not None
    assert configs["a"] == value and type(configs["a"]) is type(value)
