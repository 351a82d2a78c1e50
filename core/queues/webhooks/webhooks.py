"""The webhooks of all queues: their settings, secrets and workers. Implements `core.vocabulary.webhooks.Webhooks`.

Webhooks run where queues are served. A webhook ends with its queue; one of a queue that was deleted and created again
is deleted as well. Names, and origins of URLs, are logged; never a secret, a header or a path.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.queues.webhooks.addresses import AllowList, Rules, Target, parse_url
from core.queues.webhooks.http_client import HttpClient, Internet, Network
from core.queues.webhooks.requests import check_headers
from core.queues.webhooks.schedule import NO_ANSWER, meaning
from core.queues.webhooks.signatures import Secret, live, new_secret, parse_secret, public_key, rotated
from core.queues.webhooks.store import StoredWebhook, WebhookStore
from core.queues.webhooks.worker import Events, Worker, send
from core.records.record import CREATE_TIME, Record
from core.types import TopicPartition
from core.vocabulary.queues import Leased, Queues, QueueView, Receipt
from core.vocabulary.webhooks import (
    ATTEMPTS_KEPT,
    MAX_CONCURRENCY,
    MAX_FAILING_MS,
    MAX_RETRIES,
    MAX_RETRY_MS,
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    Attempt,
    Circuit,
    Signing,
    Verdict,
    WebhookMade,
    WebhookSettings,
    WebhookView,
)

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\Z")
_MAX_RATE = 100_000.0


class _Webhook:
    """One webhook: what is stored, its worker, and what happened in this process."""

    def __init__(self, stored: StoredWebhook) -> None:
        self.stored = stored
        self.worker: Worker | None = None
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        self.accepted = self.rejected = self.failed = 0
        # One change at a time: a change reads what is stored, and stores it again.
        self.changing = asyncio.Lock()
        self.deleted = False

    def note(self, attempt: Attempt) -> None:
        """Take note of an attempt."""
        self.attempts.append(attempt)
        if attempt.verdict is Verdict.ACCEPTED:
            self.accepted += 1
        elif attempt.verdict is Verdict.REJECTED:
            self.rejected += 1
        elif attempt.verdict is not Verdict.RELEASED:
            self.failed += 1


class Webhooks:
    """See the module. `network` is what a test hands in; `own` are the addresses of this process's listeners."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: WebhookStore,
        queues: Queues,
        own: Callable[[], Iterable[tuple[str, int]]],
        *,
        network: Network | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._queues = queues
        self._own = own
        self._network = network or Internet()
        self._tls_context: ssl.SSLContext | None = None
        self._make_tls = tls or ssl.create_default_context
        self._rules = Rules(AllowList(config.webhook_allow), only_allowed=config.webhook_allow_only)
        self._slots = asyncio.Semaphore(config.max_webhook_requests)
        self._webhooks: dict[tuple[str, str], _Webhook] = {}
        # Workers of earlier settings, whose requests end.
        self._retired: set[Worker] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self._open = False
        self._elsewhere = False

    # --- life --------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the webhooks and start those that are on. Queues are open already."""
        for stored in await self._store.load():
            self._webhooks[stored.queue, stored.name] = _Webhook(stored)
        self._open = True
        for webhook in self._webhooks.values():
            self._start(webhook)

    def elsewhere(self) -> None:
        """Refuse every call from now on: another broker serves queues."""
        self._elsewhere = True

    def drain(self) -> None:
        """Lease nothing any more. The first half of a stop."""
        self._open = False
        for webhook in self._webhooks.values():
            if webhook.worker is not None:
                webhook.worker.stop()

    async def close(self) -> None:
        """Wait for the requests under way; give the records of the others back without a delivery."""
        self.drain()
        seconds = self._config.drain_timeout_ms / 1000
        workers = [one.worker for one in self._webhooks.values() if one.worker is not None]
        await asyncio.gather(*(worker.drain(seconds) for worker in (*workers, *self._retired)))
        await asyncio.gather(*self._background, return_exceptions=True)

    # --- the facade --------------------------------------------------------------------------------------------

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
        """See `core.vocabulary.webhooks.Webhooks`."""
        self._require_on()
        view = self._queue(queue)
        _check_name(name)
        self._check(settings)
        given = None if secret is None else parse_secret(secret)
        webhook = self._of(queue, name, view)
        if webhook is None:
            return await self._create(view, name, settings, given, signing, if_version)
        async with webhook.changing:
            stored = self._unchanged(webhook, if_version)
            secrets = stored.secrets
            if given is not None and given.text != secrets[0].text:
                secrets = rotated(secrets, given, self._clock.wall_ms())
            if settings.headers is None:
                settings = replace(settings, headers=stored.settings.headers)
            changed = replace(
                stored, settings=settings, secrets=secrets, version=stored.version + 1,
                off_because="" if settings.enabled else stored.off_because,
                failing_since_ms=None if settings.url != stored.settings.url else stored.failing_since_ms,
            )  # fmt: skip
            await self._save(webhook, changed)
            return WebhookMade(self._view(webhook), None, created=False)

    def get(self, queue: str, name: str) -> WebhookView:
        """See `core.vocabulary.webhooks.Webhooks`."""
        return self._view(self._existing(queue, name))

    def of_queue(self, queue: str) -> Sequence[WebhookView]:
        """See `core.vocabulary.webhooks.Webhooks`."""
        self._require_here()
        view = self._queue(queue)
        names = sorted(name for of, name in self._webhooks if of == queue)
        found = [self._of(queue, name, view) for name in names]
        return [self._view(one) for one in found if one is not None]

    async def delete(self, queue: str, name: str) -> None:
        """See `core.vocabulary.webhooks.Webhooks`."""
        webhook = self._existing(queue, name)
        async with webhook.changing:
            if webhook.deleted:
                raise _missing(queue, name)
            await self._store.remove([(queue, name)])
            self._forget(webhook)

    async def rotate_secret(
        self, queue: str, name: str, *, secret: str | None = None, signing: Signing | None = None
    ) -> WebhookMade:
        """See `core.vocabulary.webhooks.Webhooks`."""
        webhook = self._existing(queue, name)
        given = None if secret is None else parse_secret(secret)
        async with webhook.changing:
            stored = self._unchanged(webhook, None)
            new = given or new_secret(signing or stored.secrets[0].signing, self._clock.secret_bytes)
            secrets = rotated(stored.secrets, new, self._clock.wall_ms())
            # The worker continues: it asks for the secrets at each request.
            await self._replace(webhook, replace(stored, secrets=secrets, version=stored.version + 1))
            return WebhookMade(self._view(webhook), None if given else new.text, created=False)

    async def enable(self, queue: str, name: str) -> WebhookView:
        """See `core.vocabulary.webhooks.Webhooks`."""
        self._require_on()
        webhook = self._existing(queue, name)
        async with webhook.changing:
            stored = self._unchanged(webhook, None)
            changed = replace(
                stored, settings=replace(stored.settings, enabled=True), version=stored.version + 1,
                off_because="", failing_since_ms=None,
            )  # fmt: skip
            await self._save(webhook, changed)
            return self._view(webhook)

    async def test(self, queue: str, name: str) -> Attempt:
        """See `core.vocabulary.webhooks.Webhooks`."""
        self._require_on()
        webhook = self._existing(queue, name)
        settings = webhook.stored.settings
        now_ms, began = self._clock.wall_ms(), self._clock.monotonic()
        tp = TopicPartition("webhook-test", 0)
        record = Record(0, now_ms, CREATE_TIME, b"test", b'{"test":true}', ())
        unique = self._clock.uuid4()
        leased = Leased(tp, record, 1, Receipt(0, 0, unique, 0, 0))
        message_id = f"msg_test_{unique.hex}"
        target = parse_url(settings.url)
        # The rules may have changed since it was made.
        self._rules.check_target(target)
        client = self._client(target)
        try:
            async with self._slots:
                secrets = live(webhook.stored.secrets, now_ms)
                answer, error = await send(client, settings, secrets, leased, message_id, now_ms)
        finally:
            client.close()
        found = NO_ANSWER if answer is None else meaning(
            answer.status, answer.headers, now_ms, reject_422=settings.reject_422, reject_4xx=settings.reject_4xx
        )  # fmt: skip
        duration = int((self._clock.monotonic() - began) * 1000)
        status = None if answer is None else answer.status
        return Attempt(now_ms, message_id, tp.topic, 0, 0, 1, status, duration, error, found.verdict)

    def attempts(self, queue: str, name: str) -> Sequence[Attempt]:
        """See `core.vocabulary.webhooks.Webhooks`."""
        return list(self._existing(queue, name).attempts)[::-1]

    # --- changes -----------------------------------------------------------------------------------------------

    async def _create(
        self,
        queue: QueueView,
        name: str,
        settings: WebhookSettings,
        given: Secret | None,
        signing: Signing,
        if_version: int | None,
    ) -> WebhookMade:
        if if_version:
            raise _missing(queue.name, name)
        if len(self._webhooks) >= self._config.max_webhooks:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"There are {self._config.max_webhooks:,} webhooks already (max_webhooks). Delete some.",
            )
        secret = given or new_secret(signing, self._clock.secret_bytes)
        settings = replace(settings, headers=settings.headers or ())
        now_ms = self._clock.wall_ms()
        webhook = _Webhook(StoredWebhook(queue.name, name, queue.created_ms, now_ms, 0, settings, (secret,)))
        # In the table at once: a second PUT at the same time is a change of this one.
        key = queue.name, name
        self._webhooks[key] = webhook
        async with webhook.changing:
            try:
                await self._save(webhook, replace(webhook.stored, version=1))
            except BaseException:
                webhook.deleted = True
                if self._webhooks.get(key) is webhook:
                    del self._webhooks[key]
                raise
        return WebhookMade(self._view(webhook), None if given else secret.text, created=True)

    def _unchanged(self, webhook: _Webhook, if_version: int | None) -> StoredWebhook:
        stored = webhook.stored
        if webhook.deleted:
            raise _missing(stored.queue, stored.name)
        if if_version is not None and if_version != stored.version:
            raise BrokerError(
                ErrorCode.INVALID_UPDATE_VERSION if if_version else ErrorCode.DUPLICATE_RESOURCE,
                f"The webhook {stored.name} of queue {stored.queue} has version {stored.version}.",
            )
        return stored

    async def _save(self, webhook: _Webhook, changed: StoredWebhook) -> None:
        """Store a change, and let another worker begin; requests of the one before end as they began."""
        await self._replace(webhook, changed)
        self._retire(webhook)
        self._start(webhook)

    async def _replace(self, webhook: _Webhook, changed: StoredWebhook) -> None:
        await self._store.save(changed)
        webhook.stored = changed

    def _start(self, webhook: _Webhook) -> None:
        stored = webhook.stored
        if not (self._open and self._config.webhooks and stored.settings.enabled) or webhook.deleted:
            return
        try:
            target = parse_url(stored.settings.url)
            self._rules.check_target(target)
        except BrokerError as error:
            # The rules have changed since it was made.
            log.warning("webhook %s of queue %s does not run: %s", stored.name, stored.queue, error.message)
            return
        worker = Worker(
            stored.queue, stored.name, stored.settings,
            lambda: live(webhook.stored.secrets, self._clock.wall_ms()),
            self._client(target), self._queues, self._clock, self._slots,
            Events(
                webhook.note,
                lambda healthy: self._learn(webhook, worker, healthy=healthy),
                lambda: self._switch_off(webhook, worker, "The endpoint answered 410: it wants no more requests."),
                lambda: self._queue_deleted(webhook),
                lambda: self._has_its_queue(webhook),
            ),
        )  # fmt: skip
        webhook.worker = worker
        worker.start()

    def _retire(self, webhook: _Webhook) -> None:
        worker, webhook.worker = webhook.worker, None
        if worker is not None:
            self._retired.add(worker)
            self._begin(self._end(worker))

    async def _end(self, worker: Worker) -> None:
        # A request ends by its own time limit.
        await worker.drain(worker.settings.timeout_ms / 1000 + self._config.drain_timeout_ms / 1000)
        self._retired.discard(worker)

    def _forget(self, webhook: _Webhook) -> None:
        webhook.deleted = True
        key = webhook.stored.queue, webhook.stored.name
        if self._webhooks.get(key) is webhook:
            del self._webhooks[key]
        self._retire(webhook)

    def _begin(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work of webhooks failed: %s", error)

    # --- what workers report -----------------------------------------------------------------------------------

    def _learn(self, webhook: _Webhook, worker: Worker, *, healthy: bool) -> None:
        if webhook.worker is not worker:
            return
        since, now_ms = webhook.stored.failing_since_ms, self._clock.wall_ms()
        if healthy:
            if since is not None:
                self._begin(self._note_failing(webhook, None))
        elif since is None and worker.breaker.circuit is Circuit.OPEN:
            self._begin(self._note_failing(webhook, now_ms))
        elif since is not None and now_ms - since >= MAX_FAILING_MS:
            self._switch_off(webhook, worker, "The endpoint has failed for 5 days.")

    async def _note_failing(self, webhook: _Webhook, since_ms: int | None) -> None:
        """Store since when an endpoint fails, so that five days are five days over restarts."""
        async with webhook.changing:
            if not webhook.deleted and (webhook.stored.failing_since_ms is None) is not (since_ms is None):
                await self._replace(webhook, replace(webhook.stored, failing_since_ms=since_ms))

    def _switch_off(self, webhook: _Webhook, worker: Worker, reason: str) -> None:
        if webhook.worker is not worker:
            return
        log.warning("webhook %s of queue %s is off: %s", webhook.stored.name, webhook.stored.queue, reason)
        # At once, so that nothing is leased while the change is stored.
        self._retire(webhook)
        self._begin(self._note_off(webhook, reason))

    async def _note_off(self, webhook: _Webhook, reason: str) -> None:
        async with webhook.changing:
            stored = webhook.stored
            if not webhook.deleted and webhook.worker is None:
                settings = replace(stored.settings, enabled=False)
                changed = replace(stored, settings=settings, off_because=reason, version=stored.version + 1)
                await self._replace(webhook, changed)

    def _queue_deleted(self, webhook: _Webhook) -> None:
        if not webhook.deleted:
            log.info("webhook %s: the queue %s is deleted", webhook.stored.name, webhook.stored.queue)
            self._forget(webhook)
            self._begin(self._remove(webhook))

    async def _remove(self, webhook: _Webhook) -> None:
        async with webhook.changing:
            key = webhook.stored.queue, webhook.stored.name
            if key not in self._webhooks:
                await self._store.remove([key])

    # --- checks ------------------------------------------------------------------------------------------------

    def _require_here(self) -> None:
        if self._elsewhere:
            raise BrokerError(
                ErrorCode.NOT_COORDINATOR, "Another broker of the cluster serves queues and their webhooks."
            )

    def _require_on(self) -> None:
        self._require_here()
        if not self._config.webhooks:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                "Webhooks are off, because other machines can reach this broker. Start it with --webhooks, and "
                "list hosts of your own network with --webhook-allow.",
            )

    def _queue(self, queue: str) -> QueueView:
        """Return a queue. Raises GROUP_ID_NOT_FOUND."""
        return self._queues.get(queue)

    def _has_its_queue(self, webhook: _Webhook) -> bool:
        """Return whether the queue of a webhook is there, and is not a later one of the same name."""
        stored = webhook.stored
        try:
            return self._queues.get(stored.queue).created_ms == stored.queue_created_ms
        except BrokerError as error:
            return error.code is not ErrorCode.GROUP_ID_NOT_FOUND

    def _of(self, queue: str, name: str, view: QueueView) -> _Webhook | None:
        """Return a webhook of a queue, unless it is of an earlier queue of that name."""
        webhook = self._webhooks.get((queue, name))
        if webhook is not None and webhook.stored.queue_created_ms != view.created_ms:
            self._queue_deleted(webhook)
            return None
        return webhook

    def _existing(self, queue: str, name: str) -> _Webhook:
        self._require_here()
        webhook = self._of(queue, name, self._queue(queue))
        if webhook is None:
            raise _missing(queue, name)
        return webhook

    def _check(self, settings: WebhookSettings) -> None:
        for what, value, least, most in (
            ("concurrency", settings.concurrency, 1, MAX_CONCURRENCY),
            ("timeout_ms", settings.timeout_ms, MIN_TIMEOUT_MS, MAX_TIMEOUT_MS),
            ("the number of retries", len(settings.retries_ms), 1, MAX_RETRIES),
            ("a pause of retries_ms", min(settings.retries_ms, default=0), 0, MAX_RETRY_MS),
            ("a pause of retries_ms", max(settings.retries_ms, default=0), 0, MAX_RETRY_MS),
            ("rate_per_second", settings.rate_per_second or 1.0, 0.001, _MAX_RATE),
        ):
            if not least <= value <= most:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"{what} is between {least} and {most}, not {value}."
                )
        check_headers(settings.headers or ())
        self._rules.check_target(parse_url(settings.url))

    def _view(self, webhook: _Webhook) -> WebhookView:
        stored, worker = webhook.stored, webhook.worker
        names = tuple((name, "") for name, _ in stored.settings.headers or ())
        keys = (public_key(one) for one in live(stored.secrets, self._clock.wall_ms()))
        off = stored.off_because
        if not self._config.webhooks:
            off = "Webhooks are off on this broker (--webhooks)."
        return WebhookView(
            stored.queue, stored.name, replace(stored.settings, headers=names), stored.version, stored.created_ms,
            stored.secrets[0].signing, tuple(filter(None, keys)), off,
            Circuit.CLOSED if worker is None else worker.breaker.circuit, stored.failing_since_ms,
            0 if worker is None else worker.in_flight, 0 if worker is None else worker.pace.limit,
            webhook.accepted, webhook.rejected, webhook.failed,
        )  # fmt: skip

    def _client(self, target: Target) -> HttpClient:
        return HttpClient(target, self._rules, self._clock, self._network, self._tls, self._own)

    def _tls(self) -> ssl.SSLContext:
        # One for all: it holds the authorities of the system, some MB.
        if self._tls_context is None:
            self._tls_context = self._make_tls()
        return self._tls_context


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid name {name[:60]!r} of a webhook: use 1 to 100 letters, digits, '.', '_' and '-'; no '.' first.",
        )


def _missing(queue: str, name: str) -> BrokerError:
    return BrokerError(
        ErrorCode.RESOURCE_NOT_FOUND, f"The queue {queue} has no webhook {name}. GET …/webhooks lists them."
    )
