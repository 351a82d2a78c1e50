"""Which broker coordinates a group or a transactional id, remembered until it refuses."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum

# Keys that are remembered; each costs about 200 bytes.
MAX_REMEMBERED = 20_000


class CoordinatorKind(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Broker ids by kind and key; the least recently used are dropped."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[CoordinatorKind, str], int] = OrderedDict()

    def get(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the broker id of a coordinator, if it is known."""
        broker_id = self._known.get((kind, key))
        if broker_id is not None:
            self._known.move_to_end((kind, key))
        return broker_id

    def learn(self, kind: CoordinatorKind, key: str, broker_id: int) -> None:
        """Remember a coordinator."""
        self._known[kind, key] = broker_id
        self._known.move_to_end((kind, key))
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, kind: CoordinatorKind, key: str, broker_id: int) -> None:
        """Forget a coordinator, unless another one was learned meanwhile."""
        if self._known.get((kind, key)) == broker_id:
            del self._known[kind, key]

    def forget_broker(self, broker_id: int) -> None:
        """Forget all that a broker coordinates; it cannot be reached."""
        for key in [key for key, known in self._known.items() if known == broker_id]:
            del self._known[key]
