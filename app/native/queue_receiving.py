"""Receive records of a queue, and settle them: the two hot calls of queues, below FastAPI.

    curl --json '{"topics":["orders"],"start":"earliest"}' …/queues/mail:receive   {"lease":"7f","records":[…],…}
    curl --json '{"accept":["7f"]}' …/queues/mail:settle                           {"counts":{"settled":1},…}

A lease is all that the broker keeps of a receiver: any process may settle what another one has received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import Problem
from app.formats import Reader
from app.http.json_body import check_charset
from app.http.request import Answer, ClientGoneError, Request, Scope
from app.http.waiting import check_share, while_connected
from app.native.accept import choose
from app.native.queue_bodies import (
    OUTCOMES,
    ItemSettled,
    Settlement,
    SettlementDone,
    ToExtend,
    ToReject,
    ToRelease,
    settings_to_create,
    to_receive,
    to_settle,
)
from app.native.receipts import lease_of, lease_text, receipt_of, receipt_prefix
from app.native.record_json import iso_time, record_texts
from core.config import Config
from core.facade import Facade
from core.vocabulary.queues import Leased, Outcome, Queues, Receive, Received, Settle, Verb

_JSON, _NDJSON = b"application/json", b"application/x-ndjson"
_encode = msgspec.json.Encoder().encode
_of_topic = attrgetter("tp")
Item = str | ToRelease | ToReject | ToExtend


class QueueRoutes:
    """The handlers, over one broker."""

    def __init__(self, config: Config, acting: Callable[[Scope], Facade]) -> None:
        self._acting = acting
        self._readers = {name: Reader(name, config.http_max_json_depth) for name in Reader.NAMES}

    async def receive(self, request: Request, segments: list[str]) -> Answer:
        """Lease records: as soon as there is one, or when the time is up.

        The records are yours until `lock_until`. Settle them by then, or extend the lock: what is not settled is
        delivered again. A queue that is missing is created if the body names its `topics` or `pattern`. A client that
        closes its connection while it waits has received nothing, and no delivery is counted. With `Accept:
        application/x-ndjson` the answer has one record on each line, and the lease in the header `Sluice-Lease`.
        """
        request.query(())
        body = await _json_body(request)
        wanted = to_receive(body)
        lines = choose(request.headers.get(b"accept", b""), (_JSON, _NDJSON)) == _NDJSON
        create = settings_to_create(wanted)
        name = _name(segments[1], ":receive")
        if wanted.wait_ms:
            check_share(request.scope)
        queues = self._acting(request.scope).queues
        settled = await settle(queues, name, wanted.settle) if wanted.settle else UNSET
        asked = Receive(
            max_records=wanted.max,
            max_bytes=wanted.max_bytes,
            wait_ms=wanted.wait_ms,
            lock_ms=wanted.lock_ms or None,
            attempt=wanted.attempt or None,
            create=create,
        )
        received = await _received(request, queues, name, asked)
        reader = self._readers[wanted.encoding]
        return _in_lines(received, settled, reader) if lines else _in_json(received, settled, reader)

    async def settle(self, request: Request, segments: list[str]) -> Answer:
        """Say what became of received records: accept, release, reject them, or extend their lock.

        An item is a receipt, or a lease: then it is what is left of the lease after the items with receipts of the
        same request, whatever their order. The answer has an outcome for each item, also if some could not be
        settled; to send the same again does no harm. What is settled is on the disk when this answers.
        """
        request.query(())
        body = await _json_body(request)
        wanted = to_settle(body)
        name = _name(segments[1], ":settle")
        return Answer(200, _encode(await settle(self._acting(request.scope).queues, name, wanted)))


async def _json_body(request: Request) -> bytes:
    """Return the body; one that is not empty must be JSON. Raises Problem (415)."""
    body = await request.body()
    if body:
        essence, parameters = request.media_type()
        if essence != _JSON:
            raise Problem(
                "unsupported-media-type",
                "The body must be JSON (Content-Type: application/json).",
                headers={"accept": "application/json"},
            )
        check_charset(parameters)
    return body


def _name(segment: str, verb: str) -> str:
    return segment[: -len(verb)]


# --- receive ------------------------------------------------------------------------------------------------


async def _received(request: Request, queues: Queues, name: str, asked: Receive) -> Received:
    """Return what the queue gives. If the client has disconnected, give it back at once, without a delivery."""
    late: list[Received] = []
    try:
        return await while_connected(request, queues.receive(name, asked), undelivered=late.append)
    except ClientGoneError:
        for one in late:
            # With an `attempt` the client may ask for the same lease again.
            if one.lease is not None and asked.attempt is None:
                await queues.take_back(name, one.lease)
        raise


def _in_json(received: Received, settled: SettlementDone | UnsetType, reader: Reader) -> Answer:
    lease, until, until_ms = b"null", b"null", b"null"
    if received.lease is not None:
        lease = b'"%b"' % lease_text(received.lease).encode()
        until = _encode(iso_time(received.lock_until_ms))
        until_ms = b"%d" % received.lock_until_ms
    body = b'{"lease":%b,"lock_until":%b,"lock_until_ms":%b,"records":[%b],"blocked":%b%b}' % (
        lease,
        until,
        until_ms,
        b",".join(leased_texts(received.records, reader)),
        _encode(received.blocked),
        b"" if settled is UNSET else b',"settled":%b' % _encode(settled),
    )
    return Answer(200, body)


def _in_lines(received: Received, settled: SettlementDone | UnsetType, reader: Reader) -> Answer:
    headers: list[tuple[bytes, bytes]] = []
    if received.lease is not None:
        headers.append((b"sluice-lease", lease_text(received.lease).encode()))
        if (until := iso_time(received.lock_until_ms)) is not None:
            headers.append((b"sluice-lock-until", until.encode()))
    if received.blocked is not None:
        headers.append((b"sluice-blocked", received.blocked.encode()))
    if settled is not UNSET:
        counts = ", ".join(f"{name}={count}" for name, count in settled.counts.items())
        headers.append((b"sluice-settled", counts.encode()))
    body = b"".join(b"%b\n" % text for text in leased_texts(received.records, reader))
    return Answer(200, body, _NDJSON, tuple(headers))


def leased_texts(records: Sequence[Leased], reader: Reader) -> list[bytes]:
    """Return each record of a lease as JSON by itself."""
    texts: list[bytes] = []
    for tp, run in groupby(records, _of_topic):
        some = list(run)
        plain = record_texts(tp, [one.record for one in some], reader)
        # The records of one partition in one lease share all but the end of their receipts.
        prefix = receipt_prefix(some[0].receipt).encode()
        texts += [
            b'%b,"delivery_count":%d,"receipt":"%b%x"}' % (text[:-1], count, prefix, record.offset)
            for text, (_, record, count, _) in zip(plain, some, strict=True)
        ]
    return texts


# --- settle -------------------------------------------------------------------------------------------------


async def settle(queues: Queues, name: str, wanted: Settlement) -> SettlementDone:
    """Settle, and return what became of each item, in the order of the request."""
    lists: tuple[tuple[Verb, Sequence[Item]], ...] = (
        (Verb.ACCEPT, wanted.accept),
        (Verb.RELEASE, wanted.release),
        (Verb.REJECT, wanted.reject),
        (Verb.EXTEND, wanted.extend),
    )
    done: list[list[ItemSettled]] = [[_NOTHING] * len(items) for _, items in lists]
    receipts: list[tuple[int, int, Settle]] = []
    leases: list[tuple[int, int, Settle]] = []
    for which, (verb, items) in enumerate(lists):
        for index, item in enumerate(items):
            if (found := _item(verb, item)) is not None:
                (leases if found.receipt is None else receipts).append((which, index, found))
    # Records before leases: those of a request may be exceptions from its lease.
    order = receipts + leases
    outcomes = await queues.settle(name, [one for _, _, one in order])
    for (which, index, _), (outcome, records) in zip(order, outcomes, strict=True):
        done[which][index] = ItemSettled(OUTCOMES[outcome], records)
    return SettlementDone(_counts(done), *done)


_NOTHING = ItemSettled(OUTCOMES[Outcome.INVALID], 1)


def _counts(lists: Iterable[Iterable[ItemSettled]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for items in lists:
        for item in items:
            counts[item.outcome] = counts.get(item.outcome, 0) + item.records
    return counts


def _item(verb: Verb, item: Item) -> Settle | None:
    """Return an item as the broker takes it; None if it is neither a receipt nor a lease."""
    if isinstance(item, str):
        return _plain(verb, item)
    receipt = None if item.receipt is UNSET else receipt_of(item.receipt)
    lease = None if item.receipt is not UNSET or item.lease is UNSET else lease_of(item.lease)
    if receipt is None and lease is None:
        return None
    if isinstance(item, ToRelease):
        delay_ms = None if item.delay_ms is UNSET else item.delay_ms
        return Settle(verb, receipt, lease, delay_ms=delay_ms, counted=item.count)
    if isinstance(item, ToReject):
        return Settle(verb, receipt, lease, reason=item.reason)
    return Settle(verb, receipt, lease, lock_ms=item.lock_ms or None)


def _plain(verb: Verb, text: str) -> Settle | None:
    if "." in text:
        receipt = receipt_of(text)
        return None if receipt is None else Settle(verb, receipt)
    lease = lease_of(text)
    return None if lease is None else Settle(verb, lease=lease)
