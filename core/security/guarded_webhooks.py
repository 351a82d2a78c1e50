"""Webhooks of the facade as one caller may use them. See `core.security.guarded`.

A webhook gives the records of a queue away. So to make or change one needs ALTER_CONFIGS on the group, as its
settings do, and what a receiver needs: READ on the group and on the topics of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.vocabulary.queues import Queues
from core.vocabulary.webhooks import Attempt, Signing, WebhookMade, Webhooks, WebhookSettings, WebhookView

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class GuardedWebhooks:
    """`Facade.webhooks` for one caller."""

    def __init__(self, webhooks: Webhooks, queues: Queues, rights: Rights) -> None:
        self._webhooks = webhooks
        self._queues = queues
        self._rights = rights

    async def put(
        self,
        queue: str,
        name: str,
        settings: WebhookSettings,
        *,
        secret: str | None = None,
        signing: Signing = Signing.HMAC,
        if_version: int | None = None,
    ) -> WebhookMade:
        """See `Webhooks.put`: needs ALTER_CONFIGS and READ on the group, and READ on its topics."""
        self._require_sending(queue)
        putting = self._webhooks.put(
            queue, name, settings, secret=secret, signing=signing, if_version=if_version
        )
        return await self._rights.noted("PUT_WEBHOOK", _resource(queue, name), putting)

    def get(self, queue: str, name: str) -> WebhookView:
        """See `Webhooks.get`: needs DESCRIBE_CONFIGS on the group."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _GROUP, queue)
        return self._webhooks.get(queue, name)

    def of_queue(self, queue: str) -> Sequence[WebhookView]:
        """See `Webhooks.of_queue`: needs DESCRIBE_CONFIGS on the group."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _GROUP, queue)
        return self._webhooks.of_queue(queue)

    async def delete(self, queue: str, name: str) -> None:
        """See `Webhooks.delete`: needs ALTER_CONFIGS on the group."""
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, queue)
        deleting = self._webhooks.delete(queue, name)
        await self._rights.noted("DELETE_WEBHOOK", _resource(queue, name), deleting)

    async def rotate_secret(
        self, queue: str, name: str, *, secret: str | None = None, signing: Signing | None = None
    ) -> WebhookMade:
        """See `Webhooks.rotate_secret`: needs ALTER_CONFIGS on the group."""
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, queue)
        rotating = self._webhooks.rotate_secret(queue, name, secret=secret, signing=signing)
        return await self._rights.noted("ROTATE_WEBHOOK_SECRET", _resource(queue, name), rotating)

    async def enable(self, queue: str, name: str) -> WebhookView:
        """See `Webhooks.enable`: needs what `put` needs."""
        self._require_sending(queue)
        return await self._rights.noted(
            "ENABLE_WEBHOOK", _resource(queue, name), self._webhooks.enable(queue, name)
        )

    async def test(self, queue: str, name: str) -> Attempt:
        """See `Webhooks.test`: needs what `put` needs."""
        self._require_sending(queue)
        return await self._rights.noted(
            "TEST_WEBHOOK", _resource(queue, name), self._webhooks.test(queue, name)
        )

    def attempts(self, queue: str, name: str) -> Sequence[Attempt]:
        """See `Webhooks.attempts`: needs DESCRIBE_CONFIGS on the group."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _GROUP, queue)
        return self._webhooks.attempts(queue, name)

    def _require_sending(self, queue: str) -> None:
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, queue)
        self._rights.require(Operation.READ, _GROUP, queue)
        if not self._rights.unlimited:
            for topic in self._queues.topics(queue):
                self._rights.require(Operation.READ, _TOPIC, topic)


def _resource(queue: str, name: str) -> str:
    return f"GROUP:{queue} WEBHOOK:{name[:100]}"
