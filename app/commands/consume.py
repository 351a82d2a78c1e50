"""`sluice consume`: the records of a topic, or of a group's share of it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

import click

from app.commands.bounds import bounds_of
from app.commands.group_reading import GroupReading
from app.commands.moments import FORMS, Moment, MomentType
from app.commands.options import ISOLATION, Session, TopicName, gateway, partition_list
from app.commands.output import Output
from app.commands.reading import Chunk, Reading, Wanted
from app.commands.record_output import PRESETS, Template, as_json
from app.commands.text import counted

ENCODINGS = click.Choice(["auto", "json", "text", "base64"])


@click.command()
@click.argument("topic", type=TopicName())
@click.option("--from", "moment", type=MomentType(), metavar="MOMENT",
              help=f"Where to begin: {FORMS}. [earliest; with --follow: latest]")  # fmt: skip
@click.option("-g", "--group", metavar="GROUP",
              help="As a member of this group, which commits; --from is where it never did.")  # fmt: skip
@click.option("--cursor", metavar="CURSOR", help="Begin where a stream of the HTTP API stood.")
@click.option("-p", "--partition", "partitions", metavar="LIST", help="Only these, such as 0,2-5.")
@click.option("-n", "--limit", type=click.IntRange(0), metavar="N", help="Stop after N records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("-k", "--key", help="Only records with exactly this key.")
@click.option("--key-prefix", metavar="TEXT", help="Only records whose key begins so.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True,
              help="Only records with this header; repeatable.")  # fmt: skip
@ISOLATION
@click.option("-o", "--format", "template", default="value", show_default=True, metavar="FORMAT",
              help=f"{', '.join(PRESETS)}, json, or a template such as '{{offset}} {{key}}={{value}}'.")  # fmt: skip
@click.option("-e", "--encoding", type=ENCODINGS, help="How JSON shows keys and values. [auto]")
@click.option("--null", default="", metavar="TEXT", help="The text for no key or value. [nothing]")
@click.option("--no-newline", is_flag=True, help="Nothing between records: for one that is a file.")
@gateway
def consume(
    session: Session,
    /,
    topic: str,
    moment: Moment | None,
    group: str | None,
    cursor: str | None,
    partitions: str | None,
    limit: int | None,
    follow: bool,
    key: str | None,
    key_prefix: str | None,
    headers: tuple[str, ...],
    isolation_level: str,
    template: str,
    encoding: str | None,
    null: str,
    no_newline: bool,
) -> None:
    """Print the records of TOPIC: all that are there, or with --follow those that come.

    \b
      sluice consume orders --from 2h -o full
      sluice consume orders --follow --key 17 --json
      sluice consume orders -p 0 --from 4711 -n 1
    """
    out = session.out
    printer = Printer(out, template, null=null, end="" if no_newline else "\n", encoding=encoding)
    filters = _filters(key, key_prefix, headers)
    committed = isolation_level == "read_committed"
    if cursor is not None and moment is not None:
        raise click.UsageError("Either --from or --cursor says where to begin.")
    if group is not None:
        if cursor is not None or partitions is not None or filters:
            raise click.UsageError(
                "A member of a group gets what the group gives it: no --cursor, -p, -k, -H."
            )
        begin = moment or Moment("earliest")
        _as_member(session, printer, group, topic, begin, follow=follow, limit=limit, committed=committed)
        return
    bounds = bounds_of(session.topic(topic), partition_list(partitions), committed=committed)
    wanted = Wanted(
        topic,
        partitions=None if partitions is None else tuple(bounds),
        encoding=printer.encoding,
        filters=filters,
        follow=follow,
        limit=limit,
        committed=committed,
    )
    begin = moment or Moment("latest" if follow else "earliest")
    with stopping():
        printer.print_all(Reading(session.client, wanted, out.note).chunks(begin, cursor, bounds))


def _as_member(
    session: Session,
    printer: Printer,
    group: str,
    topic: str,
    start: Moment,
    *,
    follow: bool,
    limit: int | None,
    committed: bool,
) -> None:
    if start.kind in ("offset", "back"):
        raise click.UsageError(
            "Where a group has committed nothing, it begins at earliest, latest or a time."
        )
    # A consumer that subscribes to a missing topic creates it. Here the user has probably misspelt it.
    session.topic(topic)
    member = GroupReading(
        session.client, group, topic,
        encoding=printer.encoding, start=start, follow=follow, limit=limit, committed=committed,
        note=session.out.note, flush=session.out.flush,
    )  # fmt: skip
    with stopping(), member:
        printer.print_all(member.chunks(), member.printed)


class Printer:
    """Prints records in the format that was asked for."""

    def __init__(
        self, out: Output, template: str, *, null: str = "", end: str = "\n", encoding: str | None = None
    ) -> None:
        self.printed = 0
        self._out = out
        self._template: Template | None = None
        if out.as_json or template == "json":
            self.encoding = encoding or "auto"
            return
        if encoding is not None:
            raise click.UsageError(
                "--encoding is about JSON; what is printed otherwise is as it was written."
            )
        if template not in PRESETS and "{" not in template:
            names = ", ".join([*PRESETS, "json"])
            raise click.BadParameter(
                f"{template!r} is neither {names} nor a template with {{fields}}.", param_hint="--format"
            )
        # Without JSON in it, an answer is bytes as they are: as text, or as base64 where they are no text.
        self.encoding = "text"
        try:
            self._template = Template(template, terminal=out.terminal, null=null, end=end)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--format") from None

    def print_all(self, chunks: Iterable[Chunk], printed: Callable[[], None] = lambda: None) -> None:
        """Print chunk after chunk, each before the next is requested. `printed` is called before the output."""
        with self._out.reading_progress() as progress:
            for chunk in chunks:
                self.print(chunk)
                printed()
                self._out.flush()
                progress.update(counted(self.printed, "record"))

    def print(self, chunk: Chunk) -> None:
        """Print some records."""
        render = as_json if self._template is None else self._template.render
        for record in chunk:
            self._out.write(render(record))
        self.printed += len(chunk)
        if not chunk:
            self._out.check_reader()


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Ctrl-C is how one ends a reading, and SIGTERM how `timeout` does: both are no failure."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _filters(key: str | None, key_prefix: str | None, headers: tuple[str, ...]) -> dict[str, str]:
    filters = {}
    if key is not None and key_prefix is not None:
        raise click.UsageError("Either --key or --key-prefix.")
    if key is not None:
        filters["key"] = key
    if key_prefix is not None:
        filters["key_prefix"] = key_prefix
    for text in headers:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{text!r} is not like NAME=VALUE.", param_hint="--header")
        filters[f"header.{name}"] = value
    return filters
