"""A gateway over a cluster cannot freeze it."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.upstream.freezing import NoFreezing


@pytest.mark.parametrize("call", ["freeze", "thaw"])
async def test_a_gateway_refuses_to_freeze(call: str) -> None:
    freezing = NoFreezing()
    assert freezing.state == (False, None)
    with pytest.raises(BrokerError, match="Kafka clients write to its brokers") as refused:
        await getattr(freezing, call)()
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
