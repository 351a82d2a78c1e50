"""A transaction in one request: records for several topics, offsets and acknowledged batches, all or nothing.

    curl -d '{"records":{"invoices":[{"value":1}]},
              "offsets":[{"group":"g","topic":"orders","partition":0,"offset":42,"expected":40}]}' …/transactions

A lean route, below FastAPI, as the writes of records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

from app.errors import Problem, field_error, from_broker
from app.http.json_body import check_charset
from app.http.json_errors import Fault
from app.http.principal import principal_of
from app.http.request import Answer, Request, Scope
from app.native.idempotency import HEADER as IDEMPOTENCY_KEY
from app.native.idempotency import REPLAYED, fingerprint, key_of, refusal_of_key
from app.native.one_shot_body import MAX_ERRORS, OneShotBody
from app.native.one_shot_schemas import BatchAcknowledged, CommittedPart, RangeAcknowledged
from app.native.record_json import places
from core.config import Config
from core.errors import BrokerError
from core.facade import Facade
from core.security.guarded import Guarded
from core.transactions.one_shots import OneShots
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from core.vocabulary.one_shot import Committed, OneShot
from core.vocabulary.settlements import RefusedError

_JSON = b"application/json"
_encode = msgspec.json.Encoder().encode


class OneShotRoutes:
    """The handler, over one broker."""

    def __init__(self, config: Config, acting: Callable[[Scope], Guarded]) -> None:
        self._acting = acting
        self._body = OneShotBody(config)
        self._one_shots = OneShots()

    async def commit(self, request: Request, segments: list[str]) -> Answer:
        """Commit records, offsets and batches together, all or nothing.

        Readers of committed records see all of it at once, on all topics and groups. A refusal leaves nothing, and
        `errors` names everything that is wrong, each with a `pointer` into the body. Topics that are missing are
        created before, and stay. `expected` makes an offset a fence: of two requests that expect the same one, the
        second is refused. With an `Idempotency-Key` the answer is stored in the same commit: the same request again
        gets it, also when the server died in between.
        """
        request.query(())
        essence, parameters = request.media_type()
        if essence != _JSON:
            raise Problem(
                "unsupported-media-type",
                "The body must be JSON (Content-Type: application/json).",
                headers={"accept": "application/json"},
            )
        check_charset(parameters)
        body = await request.body()
        wanted = self._body.whole(body)
        broker = self._acting(request.scope)
        named = None
        if IDEMPOTENCY_KEY in request.headers:
            named = KeyedRequest(
                "transactions", key_of(request), fingerprint(request, -1, body), principal_of(request.scope)
            )
            for topic in wanted.records:
                # Also for an answer that is stored.
                broker.require_write(topic)
        done = await commit(self._one_shots, broker, wanted, named)
        return Answer(200, done.answer or b"", headers=(REPLAYED,) if done.replayed else ())


async def commit_with_batch(
    config: Config, broker: Facade, scope: Scope, body: bytes, group: str, consumer: str, token: str
) -> KeyedAnswer:
    """Commit the output of a batch and acknowledge it. Its token is the key: sent again, it gets the same answer."""
    wanted, identity = OneShotBody(config).output(body, group, consumer, token)
    path = f"groups/{quote(group, safe='')}/consumers/{quote(consumer, safe='')}"
    named = KeyedRequest(path, quote(token, safe=""), hashlib.sha256(identity).digest(), principal_of(scope))
    return await commit(OneShots(), broker, wanted, named)


async def commit(
    one_shots: OneShots, broker: Facade, wanted: OneShot, named: KeyedRequest | None
) -> KeyedAnswer:
    """Commit it, and return the answer as JSON. Raises Problem and BrokerError."""
    try:
        return await one_shots.commit(broker, wanted, lambda done: _answer(wanted, done), named)
    except RefusedError as refusal:
        raise _refused(refusal) from None
    except BrokerError as error:
        raise refusal_of_key(error) from None


def _answer(wanted: OneShot, done: Committed) -> bytes:
    records = ",".join(f'"{topic}":[{places(results)}]' for topic, results in done.records.items())
    offsets = [CommittedPart(one.group_id, one.topic, one.partition, one.offset) for one in wanted.offsets]
    acks = [
        BatchAcknowledged(ack.group_id, ack.consumer, [RangeAcknowledged(*one) for one in ranges])
        for ack, ranges in zip(wanted.acks, done.acks, strict=True)
    ]
    return b'{"records":{%b},"offsets":%b,"acks":%b}' % (records.encode(), _encode(offsets), _encode(acks))


def _refused(refusal: RefusedError) -> Problem:
    """Return one refusal for all: that of the first fault, with each one in `errors`."""
    problem = from_broker(refusal)
    errors: Sequence[dict[str, object]] = [
        field_error(
            one.error.message,
            pointer=Fault("", one.path, False).pointer,
            kafka_error=one.error.code.name,
            kafka_error_code=int(one.error.code),
            **{name: one.error.details[name] for name in ("expected", "actual") if name in one.error.details},
        )
        for one in refusal.faults[:MAX_ERRORS]
    ]
    problem.errors = errors
    return problem
