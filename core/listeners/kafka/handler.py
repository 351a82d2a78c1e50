"""Define a handler of one API, the answers that are not plain messages, and the table of what is served.

Each file of this package that serves APIs has a `HANDLERS` table; `dispatch` joins them, and the composition root
hands the whole to the listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from core.errors import BrokerError, ErrorCode
from core.protocol.apis import APIS
from core.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from core.protocol.protocol_versions import own_support, support
from core.security.acl import Operation, ResourceType
from core.types import ApiSupport

Waiting = tuple[asyncio.Future[None], PartitionProduceResponse]


class NoAnswerType:
    """The type of `NoAnswer`."""


# What a handler returns when the protocol has no answer at all (Produce with acks=0).
NoAnswer: Final = NoAnswerType()


class WhenDurable:
    """A response that is complete when each of its partitions is as durable as the acks ask.

    The batches are appended already, so the next request of the connection need not wait for it.
    """

    __slots__ = ("_call", "_left", "_response", "_waiting")

    def __init__(self, response: ProduceResponse, waiting: list[Waiting]) -> None:
        self._response = response
        self._waiting = waiting
        self._left = len(waiting)
        self._call: Callable[[ProduceResponse], None] | None = None

    def then(self, call: Callable[[ProduceResponse], None]) -> None:
        """Have `call` called with the response once it is complete; on the loop, without a task."""
        self._call = call
        for durable, answer in self._waiting:
            durable.add_done_callback(partial(self._done, answer))

    async def wait(self) -> ProduceResponse:
        """The response, once it is complete."""
        for durable, answer in self._waiting:
            try:
                await durable
            except BrokerError as error:
                _refuse(answer, error)
        return self._response

    def _done(self, answer: PartitionProduceResponse, durable: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if durable.cancelled() else durable.exception()
        if error is not None:
            # Whatever ended the wait, nothing has said that the records are durable.
            _refuse(answer, error if isinstance(error, BrokerError) else _unknown(error))
        self._left -= 1
        if not self._left and self._call is not None:
            self._call(self._response)


def _unknown(error: BaseException) -> BrokerError:
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"The records may not be durable ({error!r}).")


def _refuse(answer: PartitionProduceResponse, error: BrokerError) -> None:
    answer.error_code, answer.error_message = error.code, error.message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


Need = tuple[Operation, ResourceType]
"""An operation on a resource of a type."""


@dataclass(frozen=True, slots=True)
class Handler:
    """Serve one API by a function of (session, request) that returns the response message or a coroutine of it.

    `needs` are the rights without which Kafka denies at least a part of the request; empty for an API that every
    client may use. There is no default, so that an API without a row is refused at the start. Calls on
    `session.broker` ask for rights by themselves; for what needs no such call, a handler asks `session.rights`.
    `cached`: the listener may keep answers, by the bytes of the request, while no topic changes. `max_version`: the
    highest version served, where it is below the codec's own.
    """

    key: int
    function: Callable[[Any, Any], Any]
    needs: tuple[Need, ...] = field(kw_only=True)
    cached: bool = False
    max_version: int | None = None

    @property
    def versions(self) -> tuple[int, int]:
        """The versions served, both ends included."""
        api = APIS[self.key]
        return api.min_version, api.max_version if self.max_version is None else self.max_version

    def serves(self, version: int) -> bool:
        """Whether this version is served."""
        low, high = self.versions
        return low <= version <= high


def table(*handlers: Handler) -> dict[int, Handler]:
    """The handlers by API key."""
    return {handler.key: handler for handler in handlers}


def served_versions(handlers: Mapping[int, Handler]) -> list[tuple[int, int, int]]:
    """Return (API key, first version, last version) of each API served, by key."""
    return [(key, *handlers[key].versions) for key in sorted(handlers)]


def protocol_versions(handlers: Mapping[int, Handler], own_key: int) -> list[ApiSupport]:
    """Return each API served, by key, as the draft of KIP-35 lists them.

    The API of the draft itself is listed under `own_key`, unless that is 0.
    """
    apis = [support(key, first, last) for key, first, last in served_versions(handlers)]
    return apis if not own_key else [*apis, own_support(own_key)]
