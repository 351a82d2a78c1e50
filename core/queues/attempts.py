"""Receives that may be repeated: an attempt has the name that the client gave it, and its lease.

While the lease lives and nothing of it is settled, a receive of the same attempt returns the same records under the
same lease, so that a lost answer costs neither a delivery nor the wait for the lock (SQS, ReceiveRequestAttemptId).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from core.errors import BrokerError, ErrorCode
from core.metadata import queues as tables
from core.metadata.store import Effect
from core.queues.share import MAX_ATTEMPTS, Attempt, Held, Lease, Queue
from core.queues.share_changes import LEASED
from core.vocabulary.queues import Receive

MAX_ATTEMPT = 100


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    lease: int
    asked: tuple[int, int, int | None]
    held: Sequence[tuple[bytes, int, int, int, int]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class Attempts:
    """The attempts of queues."""

    @staticmethod
    def restore(queue: Queue, rows: Sequence[Any], now_ms: int) -> None:
        """Take the attempts of a queue from the store whose leases may still live."""
        for name, until_ms, ranges in rows:
            if until_ms < now_ms or name in queue.attempts:
                continue
            found = _decode(ranges)
            held = []
            for topic_id, partition, nonce, first, last in found.held:
                share = queue.shares.get((UUID(bytes=topic_id), partition))
                if share is not None:
                    held.append(Held(share, nonce, first, last))
            done = asyncio.Event()
            done.set()
            lease = Lease(found.lease, until_ms, held)
            queue.attempts[name] = Attempt(found.asked, done, lease)
            queue.remember(lease)

    @staticmethod
    def asked(request: Receive) -> tuple[int, int, int | None]:
        """Return what a receive asks for, as far as a repetition must ask for the same."""
        return request.max_records, request.max_bytes, request.lock_ms

    @staticmethod
    async def begin(queue: Queue, name: str, request: Receive) -> Attempt:
        """Return an attempt: a new one, or the earlier one of that name once it is done.

        Raises INVALID_REQUEST if that one asked for something else.
        """
        if not 0 < len(name) <= MAX_ATTEMPT:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Give an attempt a name of 1 to {MAX_ATTEMPT} characters."
            )
        while True:
            found = queue.attempts.get(name)
            if found is None:
                found = queue.attempts[name] = Attempt(Attempts.asked(request), asyncio.Event())
                while len(queue.attempts) > MAX_ATTEMPTS:
                    queue.attempts.popitem(last=False)
                return found
            if found.asked != Attempts.asked(request):
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"The attempt {name[:MAX_ATTEMPT]!r} asked for something else before; use a new name.",
                )
            if found.done.is_set():
                return found
            await found.done.wait()

    @staticmethod
    def end(queue: Queue, name: str, attempt: Attempt, lease: Lease | None) -> None:
        """Note the lease of an attempt; without one the attempt is forgotten."""
        attempt.lease = lease
        attempt.done.set()
        if lease is None and queue.attempts.get(name) is attempt:
            del queue.attempts[name]

    @staticmethod
    def untouched(lease: Lease, now_ms: int) -> bool:
        """Return whether a lease still holds everything that it was given."""
        for share, nonce, first, last in lease.held:
            machine = share.machine
            if machine.nonce != nonce:
                return False
            offset = first
            while offset <= last:
                cell = machine.cell(offset)
                if cell.state != LEASED or cell.lease != lease.number or cell.time <= now_ms:
                    return False
                offset += 1
        return bool(lease.held) and not lease.touched

    @staticmethod
    def effect(queue: Queue, name: str, lease: Lease, request: Receive, now_ms: int) -> Effect:
        """Return the effect that stores an attempt."""
        held = [
            (one.share.topic_id.bytes, one.share.tp.partition, one.nonce, one.first, one.last)
            for one in lease.held
        ]
        data = _encode(_Stored(lease.number, Attempts.asked(request), held))
        return tables.put_attempt(queue.name, name, lease.deadline_ms, data, now_ms)
