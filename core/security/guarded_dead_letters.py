"""Dead letters as one caller may use them. See `core.security.guarded_queues`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import BrokerError, ErrorCode
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.security.meter import Meter
from core.vocabulary.queues import DeadLetterPage, Queues, Redrive, RedriveTask

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


class GuardedDeadLetters:
    """`Queues.dead_letters` for one caller."""

    def __init__(self, queues: Queues, rights: Rights, meter: Meter) -> None:
        self._queues = queues
        self._rights = rights
        self._meter = meter

    async def list(
        self, name: str, *, after: Mapping[int, int] | None = None, limit: int = 100
    ) -> DeadLetterPage:
        """See `DeadLetters.list`: needs READ on the group and on the dead-letter topic."""
        self._require_reading(name)
        page = await self._queues.dead_letters.list(name, after=after, limit=limit)
        self._meter.read(one.record for one in page.records)
        return page

    async def redrive(self, name: str, redrive: Redrive) -> RedriveTask:
        """See `DeadLetters.redrive`: needs what `list` needs, and WRITE on the topics that get the records."""
        self._require_reading(name)
        if not self._rights.unlimited:
            topics = self._queues.topics(name) if redrive.to is None else (redrive.to,)
            for topic in topics if redrive.topic is None or redrive.to is not None else (redrive.topic,):
                self._rights.require(_WRITE, _TOPIC, topic)
        work = self._queues.dead_letters.redrive(name, redrive)
        return await self._rights.noted("REDRIVE_DEAD_LETTERS", f"GROUP:{name}", work)

    def tasks(self, name: str) -> Sequence[RedriveTask]:
        """See `DeadLetters.tasks`: needs DESCRIBE on the group."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        return self._queues.dead_letters.tasks(name)

    async def cancel(self, name: str, task_id: str) -> RedriveTask:
        """See `DeadLetters.cancel`: needs READ on the group and on the dead-letter topic."""
        self._require_reading(name)
        work = self._queues.dead_letters.cancel(name, task_id)
        return await self._rights.noted("CANCEL_REDRIVE", f"GROUP:{name}", work)

    async def purge(self, name: str) -> None:
        """See `DeadLetters.purge`: needs DELETE on the group."""
        self._rights.require(Operation.DELETE, _GROUP, name)
        work = self._queues.dead_letters.purge(name)
        await self._rights.noted("PURGE_DEAD_LETTERS", f"GROUP:{name}", work)

    def _require_reading(self, name: str) -> None:
        self._rights.require(_READ, _GROUP, name)
        if self._rights.unlimited:
            return
        dead_letter = self._queues.get(name).settings.dead_letter
        if dead_letter is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"The queue {name!r} has no dead-letter topic.", group=name
            )
        self._rights.require(_READ, _TOPIC, dead_letter.topic)
