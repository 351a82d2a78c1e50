"""The shapes of managed consumers: their examples are right, their bounds are the broker's."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.native import consumer_schemas
from app.native.consumer_schemas import Ack, ConsumerToCreate, Poll, SeekTo, SomePartitions
from core.config import Config


@pytest.mark.parametrize("shape", [ConsumerToCreate, Poll, Ack, SeekTo, SomePartitions])
def test_every_example_is_acceptable(shape: type[BaseModel]) -> None:
    extra: Any = shape.model_config["json_schema_extra"]
    assert extra["examples"]
    for example in extra["examples"]:
        shape.model_validate(example)


def test_the_defaults_of_a_poll_are_the_broker_s() -> None:
    poll, config = Poll(), Config()
    assert (poll.limit, poll.max_bytes) == (config.http_default_limit, config.http_default_read_bytes)
    assert poll.wait_ms == consumer_schemas.DEFAULT_WAIT_MS > config.group_initial_rebalance_delay_ms
    with pytest.raises(ValidationError):
        Poll(limit=config.http_max_limit + 1)
