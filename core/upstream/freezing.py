"""The switch that refuses writes. A gateway over a cluster has none: other clients write to the cluster itself."""

from __future__ import annotations

from core.vocabulary.capabilities import unsupported
from core.vocabulary.freeze import FreezeState

_NO_FREEZE = "A gateway over a Kafka cluster cannot freeze it: Kafka clients write to its brokers directly."


class NoFreezing:
    """The part `freezing` of a gateway over a cluster."""

    @property
    def state(self) -> FreezeState:
        """See `Freezing.state`: writes are taken."""
        return FreezeState(False, None)

    async def freeze(self) -> FreezeState:
        """Raise UNSUPPORTED_VERSION."""
        raise unsupported(_NO_FREEZE)

    async def thaw(self) -> FreezeState:
        """Raise UNSUPPORTED_VERSION."""
        raise unsupported(_NO_FREEZE)
