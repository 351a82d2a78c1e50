"""Every limit and default of the pipeline, with its reason. Options override what they name."""

from __future__ import annotations

MIB = 1024 * 1024

CONNECT_TIMEOUT_S = 10.0
"""How long one TCP connect may take: a host that drops packets would hold a task for two minutes otherwise."""

REQUEST_TIMEOUT_S = 30.0
"""How long one answer may take (`kafka.request.timeout.ms`); the Java client's default as well."""

RETRY_TIMEOUT_S = 60.0
"""How long an operation is tried again while the broker is away or has no leader (`kafka.default.api.timeout.ms`,
the Java client's default). A restart of a broker takes seconds; a task that gives up is tried again by Spark."""

RETRY_PAUSE_S = 0.1
"""The pause before the first retry; it doubles up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 2.0
"""The longest pause between two tries: a broker that is back is found within it."""

MAX_FRAME_BYTES = 1024 * MIB
"""The largest answer that is believed; the length in front of a frame is the broker's word."""

FETCH_BYTES = 2 * MIB
"""Record bytes asked for in one fetch (`kafka.max.partition.fetch.bytes`). Below 1 MiB the request's cost shows; more
takes memory in each worker and gains nothing, since the next answer travels while one is decoded."""

FETCH_WAIT_MS = 500
"""How long a fetch may wait at the broker. What is asked for is below the high watermark, so it never should."""

ARROW_BYTES = 4 * MIB
"""Decompressed bytes after which an Arrow batch is handed to Spark. One compressed batch is never split, and may be
larger."""

MAX_DECOMPRESSED_BYTES = 256 * MIB
"""What one record batch may decompress to. Producers send 1 MiB by default; a bomb ends here."""

SEGMENT_READ_BYTES = 2 * MIB
"""Bytes of a segment file read at once, as in a fetch."""

EMPTY_FETCHES = 20
"""Answers in a row without a record below the high watermark after which a read fails. With `FETCH_WAIT_MS`
each, that is ten seconds in which a broker returns none of the records that it says it has."""

MAX_TASKS = 10_000
"""Tasks of one read. Each costs the driver a pickled range and Spark some milliseconds."""

PRODUCE_BATCH_BYTES = 512 * 1024
"""Record bytes of one produced batch; brokers refuse more than 1 MiB by default (max.message.bytes)."""

PRODUCE_BUFFER_BYTES = 16 * MIB
"""Bytes of batches that one task fills at a time, over all partitions; beyond it the largest is sent."""

PRODUCE_IN_FLIGHT = 4
"""Produce requests under way on one connection. Brokers know the last five batches of a
producer, by which they tell a duplicate."""

TRANSACTION_TIMEOUT_MS = 900_000
"""How long the transactions of a write with delivery=exactly-once may stay open (`kafka.transaction.timeout.ms`): the
most that brokers allow by default (transaction.max.timeout.ms). It must be longer than the longest batch. What a
killed query leaves open is aborted by the next batch; until then it holds up readers of committed records."""

HTTP_ANSWER_BYTES = 4 * MIB
"""Bytes of an answer of the HTTP API that are read. The answers that are asked for have some kilobytes."""

WATCH_SECONDS = 1.0
"""How often a batch job looks how far it is. A look is a handful of calls into the JVM; people watch seconds."""

LOG_SECONDS = 10.0
"""The time between two lines of a step if the progress is written to a log: a job of hours must not fill it."""
