"""Brokers as the targets of Produce requests, and what takes their answers."""

from __future__ import annotations

from collections.abc import Callable

from core.client.produce_batches import Batch, PartitionQueue
from core.errors import BrokerError
from core.protocol.messages.produce import ProduceResponse

Sent = list[tuple[PartitionQueue, Batch]]
"""The batches of one request, each with its queue."""


class Destination:
    """A broker, and the queues that have something for it."""

    __slots__ = ("broker_id", "in_flight", "muted_until", "ready")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.in_flight = 0
        self.muted_until = 0.0
        self.ready: dict[PartitionQueue, None] = {}


class Reply:
    """Takes the answer to a Produce in the turn of the loop in which it comes; a future would take one more."""

    __slots__ = ("_answered", "_destination", "_sent", "_taken")

    def __init__(
        self,
        answered: Callable[[Destination, Sent, ProduceResponse | BrokerError], None],
        destination: Destination,
        sent: Sent,
    ) -> None:
        self._answered = answered
        self._destination = destination
        self._sent = sent
        self._taken = False

    def done(self) -> bool:
        """See `link.Reply`."""
        return self._taken

    def cancelled(self) -> bool:
        """See `link.Reply`: an answer is always wanted."""
        return False

    def set_result(self, message: ProduceResponse) -> None:
        """See `link.Reply`."""
        self._taken = True
        self._answered(self._destination, self._sent, message)

    def set_exception(self, error: BrokerError) -> None:
        """See `link.Reply`."""
        self._taken = True
        self._answered(self._destination, self._sent, error)
