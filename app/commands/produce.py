"""`sluice produce`: records from arguments, lines, NDJSON and files."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from app.commands.delivery import Delivery
from app.commands.errors import CommandError, InputError
from app.commands.moments import Moment, MomentType
from app.commands.options import Session, TopicName, gateway
from app.commands.output import Output, Progress
from app.commands.record_input import (
    Outgoing,
    Shape,
    from_arguments,
    from_lines,
    from_ndjson,
    from_whole,
    header,
)
from app.commands.text import counted, size

BATCH_RECORDS = 1000
BATCH_BYTES = 1 << 20
# For a gateway that does not tell its limit.
_BODY_BYTES = 16 << 20
ENCODINGS = click.Choice(["text", "json", "base64"])


@click.command()
@click.argument("topic", type=TopicName())
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("-f", "--file", "files", metavar="FILE", multiple=True, type=click.Path(path_type=Path),
              help="Read this instead of the standard input; repeatable, - is the standard input.")  # fmt: skip
@click.option("--ndjson", is_flag=True,
              help="Each line is a record as `consume --json` prints it: key, value, headers …")  # fmt: skip
@click.option("--whole", is_flag=True, help="Each input is one record, not one a line.")
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help=r"Each line is KEY TEXT VALUE; \t is a tab.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; repeatable.")
@click.option(
    "-p", "--partition", type=click.IntRange(0, 2**31 - 1), metavar="N", help="The partition of all."
)
@click.option("--timestamp", type=MomentType("time"), metavar="TIME", help="The timestamp of all records.")
@click.option("-e", "--encoding", type=ENCODINGS, default="text", show_default=True,
              help="What values are: text or bytes as they are, checked JSON, base64 to be decoded.")  # fmt: skip
@click.option("--key-encoding", type=ENCODINGS, default="text", show_default=True, help="What keys are.")
@click.option("--tombstone", is_flag=True, help="One record with the key and no value: it deletes the key.")
@click.option("--drop-partition", is_flag=True, help="With --ndjson: let the key choose the partition again.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
              help="When a record counts as written: on disk, in the log, at once.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 50_000), default=BATCH_RECORDS, show_default=True, metavar="N",
              help="Records in one request.")  # fmt: skip
@click.option("--idempotent/--no-idempotent", default=True, show_default=True,
              help="Name each request by a key, so that it can be repeated and is written once.")  # fmt: skip
@click.option("--retry-for", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to wait for a gateway that has stopped.")  # fmt: skip
@gateway
def produce(
    session: Session,
    /,
    topic: str,
    values: tuple[str, ...],
    files: tuple[Path, ...],
    ndjson: bool,
    whole: bool,
    tombstone: bool,
    drop_partition: bool,
    acks: str,
    batch: int,
    idempotent: bool,
    retry_for: float,
    **record: object,
) -> None:
    """Write records to TOPIC: each VALUE, or else each line of the standard input.

    \b
      sluice produce orders 'one record' 'and another'
      sluice produce orders --key 17 --encoding json '{"total": 3}'
      tail -f access.log | sluice produce log
      sluice consume orders --json | sluice produce copy --ndjson --drop-partition
    """
    _check(
        values=values,
        files=files,
        ndjson=ndjson,
        whole=whole,
        tombstone=tombstone,
        drop=drop_partition,
        **record,
    )
    shape = _shape(**record)
    limits = session.client.get("/").get("limits", {})
    most_bytes = int(limits.get("body_bytes", _BODY_BYTES))
    if tombstone:
        source: Iterator[Outgoing | None] = iter([shape.record(None, "the tombstone")])
    elif values:
        source = from_arguments(values, shape)
    else:
        source = _from_files(files or (Path("-"),), shape, most_bytes, ndjson, whole, drop_partition)
    delivery = Delivery(
        session.client,
        topic,
        acks=acks,
        retry_seconds=retry_for,
        idempotent=idempotent,
        note=session.out.note,
    )
    most_records = min(batch, int(limits.get("records_per_write", batch)))
    _write(session.out, topic, delivery, source, most_records, min(BATCH_BYTES, most_bytes))


def _write(
    out: Output,
    topic: str,
    delivery: Delivery,
    source: Iterator[Outgoing | None],
    most_records: int,
    most_bytes: int,
) -> None:
    """Write everything, and tell what became of it, also where it ended before its time."""
    started = time.monotonic()
    try:
        with out.progress() as progress:
            _send_all(delivery, source, most_records, most_bytes, progress)
    except (CommandError, KeyboardInterrupt) as error:
        written = counted(delivery.written.records, "record")
        if out.as_json:
            _report(out, topic, delivery, started)
        elif isinstance(error, InputError):
            error.hints = (f"{written} before it written.",)
        elif isinstance(error, KeyboardInterrupt):
            uncertain = f"; perhaps also {delivery.under_way}" if delivery.under_way else ""
            out.note(f"stopped; {written} written{uncertain}.")
        raise
    _report(out, topic, delivery, started)


def _check(
    *,
    values: tuple[str, ...],
    files: tuple[Path, ...],
    ndjson: bool,
    whole: bool,
    tombstone: bool,
    drop: bool,
    key: object,
    key_separator: object,
    **others: object,
) -> None:
    """Refuse options that contradict each other."""
    if values and (files or ndjson or whole):
        raise click.UsageError(
            "Values on the command line cannot be combined with --file, --ndjson and --whole."
        )
    if ndjson and whole:
        raise click.UsageError("--ndjson is one record a line, --whole one an input: not both.")
    own = key is not None or key_separator is not None or others["headers"] or others["partition"] is not None
    if ndjson and (own or others["timestamp"] is not None):
        raise click.UsageError(
            "With --ndjson each record brings its own key, headers, partition and timestamp."
        )
    if drop and not ndjson:
        raise click.UsageError("--drop-partition requires --ndjson.")
    if key is not None and key_separator is not None:
        raise click.UsageError("Either one --key for all, or a --key-separator.")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    if tombstone and (values or files or ndjson or whole or key is None):
        raise click.UsageError("--tombstone takes a --key, and no values.")


def _shape(**record: object) -> Shape:
    key, separator, moment = record["key"], record["key_separator"], record["timestamp"]
    partition, headers = record["partition"], record["headers"]
    assert isinstance(headers, tuple)
    return Shape(
        encoding=str(record["encoding"]),
        key_encoding=str(record["key_encoding"]),
        key=os.fsencode(key) if isinstance(key, str) else None,
        key_separator=os.fsencode(_unescape(separator)) if isinstance(separator, str) else None,
        headers=tuple(header(text) for text in headers),
        partition=partition if isinstance(partition, int) else None,
        timestamp_ms=moment.value if isinstance(moment, Moment) else None,
    )


def _unescape(text: str) -> str:
    for written, meant in (("\\t", "\t"), ("\\n", "\n"), ("\\0", "\0")):
        text = text.replace(written, meant)
    return text


def _from_files(
    files: tuple[Path, ...], shape: Shape, max_bytes: int, ndjson: bool, whole: bool, drop_partition: bool
) -> Iterator[Outgoing | None]:
    for path in files:
        with _open(path) as (stream, name):
            if ndjson:
                yield from from_ndjson(stream, name, max_bytes, drop_partition=drop_partition)
            elif whole:
                yield from from_whole(stream, name, shape, max_bytes)
            else:
                yield from from_lines(stream, name, shape, max_bytes)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    if str(path) != "-":
        with path.open("rb") as stream:
            yield stream, str(path)
        return
    if sys.stdin.isatty():
        click.echo("Records, one a line; Ctrl-D ends.", err=True)
    yield sys.stdin.buffer, "the input"


def _until_a_mistake(
    source: Iterator[Outgoing | None], flush: Callable[[], None]
) -> Iterator[Outgoing | None]:
    """What stands before a line that cannot be sent is sent."""
    try:
        yield from source
    except InputError:
        flush()
        raise


def _send_all(
    delivery: Delivery,
    source: Iterator[Outgoing | None],
    records: int,
    size_limit: int,
    progress: Progress,
) -> None:
    started = time.monotonic()
    batch: list[Outgoing] = []
    held = 0

    def flush() -> None:
        nonlocal held
        if batch:
            delivery.send(batch)
            batch.clear()
            held = 0
            written = delivery.written
            rate = written.records / max(time.monotonic() - started, 0.001)
            progress.update(f"{counted(written.records, 'record')}, {size(written.size)}, {rate:,.0f}/s")

    for record in _until_a_mistake(source, flush):
        if record is None:
            flush()
            continue
        if batch and (len(batch) >= records or held + len(record.json) > size_limit):
            flush()
        batch.append(record)
        held += len(record.json) + 1
    flush()


def _report(out: Output, topic: str, delivery: Delivery, started: float) -> None:
    written = delivery.written
    seconds = time.monotonic() - started
    if out.as_json:
        parts = [
            {
                "partition": p,
                "records": w.records,
                "first_offset": w.first_offset,
                "last_offset": w.last_offset,
            }
            for p, w in sorted(written.partitions.items())
        ]
        out.document(
            {
                "topic": topic,
                "records": written.records,
                "partitions": parts,
                "duration_ms": int(seconds * 1000),
            }
        )
        return
    out.say(f"{counted(written.records, 'record')} written to {topic}.")
    for number, part in sorted(written.partitions.items()):
        if part.first_offset is None:
            where = counted(part.records, "record")
        elif part.records == 1:
            where = f"offset {part.first_offset}"
        else:
            where = f"{counted(part.records, 'record')}, offsets {part.first_offset} to {part.last_offset}"
        out.say(f"  partition {number}: {where}")
