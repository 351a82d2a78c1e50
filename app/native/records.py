"""The lean routes that write records, and read the records of one partition.

They run below FastAPI, on msgspec and the broker alone. A long poll is one coroutine that waits in the broker;
it holds no thread, and it ends when the client closes its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from app.errors import Problem, field_error, from_broker
from app.formats import ENCODING_NAMES, FormatError, Reader, to_bytes
from app.http.json_body import check_charset
from app.http.parameters import MAX_OFFSET, MAX_PARTITION, parse_moment
from app.http.request import Answer, Request, Scope, Streamed, invalid_parameter, whole_number
from app.http.waiting import check_share, while_connected
from app.native.idempotency import HEADER as IDEMPOTENCY_KEY
from app.native.idempotency import KeyedWrites
from app.native.produce_body import ProduceBody
from app.native.produce_lines import ProduceLines, wants_lines
from app.native.record_json import places, record_page, written_record
from app.native.record_schemas import ProduceQuery, ReadQuery, RecordsWritten
from app.native.transaction_header import NAME as TRANSACTION
from app.native.transaction_header import transaction_of
from core.config import Config
from core.errors import BrokerError
from core.facade import Facade
from core.records.record import NewRecord
from core.transactions.long_transactions import CallersTransactions
from core.types import TopicPartition
from core.vocabulary.consumers import READ_COMMITTED, READ_UNCOMMITTED
from core.vocabulary.records import FetchRead, ProduceResult, ReadResult

_ENDS = ("earliest", "latest")
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
HEADER_PREFIX = b"x-kafka-header-"
JSON_TYPES = frozenset({b"application/json"})
NDJSON_TYPES = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})

_encode = msgspec.json.Encoder().encode


class RecordRoutes:
    """The handlers, over one broker."""

    def __init__(
        self,
        config: Config,
        acting: Callable[[Scope], Facade],
        transactions: Callable[[Scope], CallersTransactions],
    ) -> None:
        self._config = config
        self._transactions = transactions
        self._acting = acting
        self._body = ProduceBody(max_depth=config.http_max_json_depth, max_records=config.http_max_records)
        self._keyed = KeyedWrites(acting, transactions, _written)
        self._lines = ProduceLines(config, acting, self._body)
        self._readers = {name: Reader(name, config.http_max_json_depth) for name in Reader.NAMES}

    # --- write ---------------------------------------------------------------------------------------------

    async def produce(self, request: Request, segments: list[str]) -> Answer | Streamed:
        """Write records.

        The body is JSON with `records` or one bare record, newline-delimited JSON with a record on each line, or of
        any other media type: then the body is the value of one record, byte by byte, with `key`, `partition` and
        `timestamp` from the query and a header for each `X-Kafka-Header-<name>` line. The answer names a place for
        each record in the order given: 200 when all were taken, 207 when some were, else the refusal.

        Newline-delimited JSON with `Accept: application/x-ndjson` is written and answered line by line, while the
        body is still being sent and for as long as the client likes: each line gets its own in the answer, in order,
        and a bad one harms no other. A client must read the answers while it sends. A line without `partition` is
        the last and says why the stream ends: `{"problem": …}` or `{"bye": …}`; what was not answered then was not
        written.

        With the header `Transaction` the records belong to that transaction: readers of committed records see them
        when it is committed, and never if it is aborted.
        """
        topic = segments[1]
        essence, parameters = request.media_type()
        acks = -1
        if essence in JSON_TYPES or essence in NDJSON_TYPES:
            if request.scope["query_string"]:
                acks = _acks(request.query(("acks",)))
            check_charset(parameters)
            if essence in NDJSON_TYPES and (lines := wants_lines(request)):
                if transaction_of(request) is not None:
                    raise invalid_parameter(
                        TRANSACTION, "A stream of lines with answers cannot be a part of a transaction."
                    )
                return await self._lines.answer(request, topic, acks, lines)
            body = await request.body()
            records = self._body.from_json(body) if essence in JSON_TYPES else self._body.from_ndjson(body)
        else:
            query = request.query(ProduceQuery.__struct_encode_fields__)
            acks = _acks(query)
            body = await request.body()
            records = [self._raw_record(request, query, body)]
        if IDEMPOTENCY_KEY in request.headers:
            return await self._keyed.produce(request, topic, records, acks, body)
        if (transaction := transaction_of(request)) is not None:
            transactions = self._transactions(request.scope)
            return _written(topic, await transactions.produce(transaction, topic, records, acks=acks))
        results = await self._acting(request.scope).records.produce(topic, records, acks=acks)
        return _written(topic, results)

    def _raw_record(self, request: Request, query: Mapping[str, str], body: bytes) -> NewRecord:
        """The one record of a raw body: its key and partition from the query, its headers from the header."""
        key = None
        if (text := query.get("key")) is not None:
            try:
                key = to_bytes(
                    _encode(text), query.get("key_encoding", "utf8"), self._config.http_max_json_depth
                )
            except FormatError as error:
                raise invalid_parameter("key", f"The key cannot be taken: {error}.") from None
        elif "key_encoding" in query:
            raise invalid_parameter("key_encoding", "key_encoding needs a key.")
        partition = None
        if (number := query.get("partition")) is not None:
            partition = whole_number("partition", number, 0, MAX_PARTITION)
        timestamp = parse_moment("timestamp", query["timestamp"]) if "timestamp" in query else None
        headers = tuple(
            (name[len(HEADER_PREFIX) :].decode("latin-1"), value)
            for name, value in request.scope["headers"]
            if name.startswith(HEADER_PREFIX)
        )
        return NewRecord(key, body, headers, timestamp, partition)

    # --- read ----------------------------------------------------------------------------------------------

    async def read(self, request: Request, segments: list[str]) -> Answer:
        """Read records of one partition.

        Stateless: nothing is remembered between two reads. Continue at `next_offset`. With `wait_ms` a read at the
        end of the partition waits for the next record, and is answered empty when none came.
        """
        config = self._config
        tp = _tp_of(segments)
        query = request.query(ReadQuery.__struct_encode_fields__)
        reader = self._reader(query)
        limit, max_bytes, wait_ms = config.http_default_limit, config.http_default_read_bytes, 0
        if "limit" in query:
            limit = whole_number("limit", query["limit"], 1, config.http_max_limit)
        if "max_bytes" in query:
            max_bytes = whole_number("max_bytes", query["max_bytes"], 1, config.http_max_read_bytes)
        if "wait_ms" in query:
            wait_ms = whole_number("wait_ms", query["wait_ms"], 0, config.max_wait_ms)
        committed = read_committed(query)
        offset = await self._start(self._acting(request.scope), tp, query, committed)
        result = await self._read(
            request, tp, offset, limit=limit, max_bytes=max_bytes, wait_ms=wait_ms, committed=committed
        )
        return Answer(200, record_page(tp, result, reader, committed=committed))

    def _reader(self, query: Mapping[str, str]) -> Reader:
        name = query.get("encoding", "auto")
        reader = self._readers.get(name)
        if reader is None:
            raise invalid_parameter(
                "encoding", f"encoding must be one of {', '.join(Reader.NAMES)}, not {name[:40]!r}."
            )
        return reader

    async def _start(
        self, broker: Facade, tp: TopicPartition, query: Mapping[str, str], committed: bool
    ) -> int:
        """The offset to read from: `offset` (a number, earliest, latest), `timestamp`, or the earliest."""
        text = query.get("offset", "earliest")
        if "timestamp" in query:
            if "offset" in query:
                raise invalid_parameter("timestamp", "Give an offset or a timestamp, not both.")
            moment = parse_moment("timestamp", query["timestamp"])
            await broker.look(partitions=(tp,), moment=moment, committed=committed)
            found = broker.partitions.offset_for_time(tp, moment, committed=committed).offset
            if found >= 0:
                return found
            text = "latest"
        if text in _ENDS:
            await broker.look(partitions=(tp,))
        if text == "earliest":
            return broker.partitions.info(tp).offsets.log_start_offset
        if text == "latest":
            return broker.partitions.info(tp).offsets.end(committed=committed)
        if text[:1].isalpha():
            raise invalid_parameter(
                "offset", f"offset must be a number, earliest or latest, not {text[:40]!r}."
            )
        return whole_number("offset", text, 0, MAX_OFFSET)

    async def _read(
        self,
        request: Request,
        tp: TopicPartition,
        offset: int,
        *,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        committed: bool,
    ) -> ReadResult:
        """Return the records; if there are none, wait for up to `wait_ms`, or until the client disconnects."""
        broker = self._acting(request.scope)
        try:
            await broker.bring((FetchRead(tp, offset, max_bytes, committed=committed),), max_bytes=max_bytes)
            result = broker.records.read_now(
                tp, offset, max_bytes=max_bytes, max_records=limit, committed=committed
            )
            if result.records or not wait_ms:
                return result
            check_share(request.scope)
            return await while_connected(
                request,
                broker.records.read(
                    tp,
                    offset,
                    max_bytes=max_bytes,
                    max_records=limit,
                    wait_ms=wait_ms,
                    first=result,
                    committed=committed,
                ),
            )
        except BrokerError as error:
            raise from_broker(error, offset=offset) from None


def _tp_of(segments: list[str]) -> TopicPartition:
    return TopicPartition(segments[1], whole_number("partition", segments[3], 0, MAX_PARTITION))


def read_committed(query: Mapping[str, str]) -> bool:
    """Return what `isolation_level` says: whether to read committed records only. Raises Problem."""
    level = query.get("isolation_level", READ_COMMITTED)
    if level not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise invalid_parameter(
            "isolation_level",
            f"isolation_level must be read_committed or read_uncommitted, not {level[:40]!r}.",
        )
    return level == READ_COMMITTED


def _acks(query: Mapping[str, str]) -> int:
    text = query.get("acks", "all")
    if text not in ACKS:
        raise invalid_parameter("acks", f"acks must be 0, 1 or all, not {text[:20]!r}.")
    return ACKS[text]


# --- the answer of a write ----------------------------------------------------------------------------------


def _written(topic: str, results: Sequence[ProduceResult]) -> Answer:
    """200 when all were taken, 207 when some were, the refusal when none was."""
    failed = [result.error is not None for result in results].count(True)
    if not failed:
        return Answer(200, f'{{"topic":"{topic}","records":[{places(results)}]}}'.encode())
    if failed == len(results):
        raise _all_refused(results)
    return Answer(207, _encode(RecordsWritten(topic, [written_record(result) for result in results])))


def _all_refused(results: Sequence[ProduceResult]) -> Problem:
    """One refusal for all records: that of the first, with each record's own in `errors`."""
    errors = [
        field_error(
            r.error.message,
            pointer=f"#/records/{index}",
            record=index,
            kafka_error=r.error.code.name,
            kafka_error_code=int(r.error.code),
        )
        for index, r in enumerate(results)
        if r.error is not None
    ]
    first = results[0].error
    assert first is not None
    problem = from_broker(first)
    problem.errors = errors[:100]
    return problem


__all__ = ["ENCODING_NAMES", "RecordRoutes"]
