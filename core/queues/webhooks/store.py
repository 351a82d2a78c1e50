"""Webhooks as rows: what is stored of each, durable when the future is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from core.metadata import webhooks as tables
from core.metadata.store import Store
from core.queues.webhooks.signatures import Secret
from core.vocabulary.webhooks import WebhookSettings

_encode = msgspec.msgpack.Encoder().encode
_decode_settings = msgspec.msgpack.Decoder(WebhookSettings).decode
_decode_secrets = msgspec.msgpack.Decoder(tuple[Secret, ...]).decode


@dataclass(frozen=True, slots=True, repr=False)
class StoredWebhook:
    """What is stored of a webhook. `secrets` has the newest first."""

    queue: str
    name: str
    queue_created_ms: int
    created_ms: int
    version: int
    settings: WebhookSettings
    secrets: tuple[Secret, ...]
    off_because: str = ""
    failing_since_ms: int | None = None


class WebhookStore:
    """The table of webhooks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> list[StoredWebhook]:
        """Return all webhooks."""
        rows = await self._store.read(tables.load_webhooks)
        return [
            StoredWebhook(
                queue, name, queue_created_ms, created_ms, version, _decode_settings(settings),
                _decode_secrets(secrets), off_because, failing_since_ms,
            )
            for queue, name, queue_created_ms, created_ms, version, settings, secrets, off_because, failing_since_ms
            in rows
        ]  # fmt: skip

    def save(self, one: StoredWebhook) -> asyncio.Future[None]:
        """Store a webhook, new or changed."""
        row = (
            one.queue, one.name, one.queue_created_ms, one.created_ms, one.version, _encode(one.settings),
            _encode(one.secrets), one.off_because, one.failing_since_ms,
        )  # fmt: skip
        return self._store.submit([tables.put_webhook(row)])

    def remove(self, names: Sequence[tuple[str, str]]) -> asyncio.Future[None]:
        """Delete webhooks, each by queue and name."""
        return self._store.submit([tables.remove_webhooks(names)])
