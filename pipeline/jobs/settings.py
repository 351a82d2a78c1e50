"""The settings of each job. One definition gives the YAML keys, the flags, their help, and the checks.

A field `max_offsets_per_trigger` is `max_offsets_per_trigger:` in YAML and `--max-offsets-per-trigger` as a flag.
Unknown keys, wrong types and contradictions are refused before anything starts.
"""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

PASSWORD = "SLUICE_SASL_PASSWORD"
"""The environment variable for a user's password or token. No flag and no YAML key holds one."""

TIME_PARTS = ("year", "month", "day", "hour")
_DURATION = re.compile(
    r"^\s*\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?|weeks?)\s*$"
)
_TABLE = re.compile(r"^\w+(\.\w+)+$")


def told(description: str, **limits: Any) -> Meta:
    """The help of a field, and limits of its value."""
    return Meta(description=description, **limits)


Topics = Annotated[list[str], told("A topic to read; repeat it for more.")]
Duration = Annotated[str, told("Such as `10 seconds`, `5 minutes`, `1 day`.")]


def check_pattern(pattern: str | None, written: str | None = None) -> None:
    """A ValueError unless the text is a regular expression, and one that finds not what the job writes."""
    if pattern is None:
        return
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern is {pattern!r}, which is no regular expression: {error}") from None
    if written is not None and found.fullmatch(written):
        raise ValueError(f"the pattern {pattern!r} finds the topic {written} too, which is written")


def check_duration(name: str, value: str | None) -> None:
    """A ValueError unless the text is a duration as Spark reads it."""
    if value is not None and not _DURATION.match(value):
        raise ValueError(f"{name} is {value!r}; it is a duration such as `10 seconds` or `5 minutes`")


def check_source(options: dict[str, str]) -> None:
    """A ValueError for an option that has a setting of its own, which all readers and writers of a job use.

    A secret would be on the command line, and in the job's state, for others to read; its value is not repeated.
    """
    for name in options:
        short = name.lower().removeprefix("kafka.")
        if short in ("sasl.password", "sasl.jaas.config"):
            raise ValueError(
                f"source must not hold {name}: use sasl_password_file, or {PASSWORD} in the environment"
            )
        if short.startswith(("sasl.", "ssl.", "security.")):
            raise ValueError(
                f"source must not hold {name}: use the setting {short.replace('.', '_')} of the job"
            )


class Job(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="job"):
    """The settings of every job."""

    bootstrap: Annotated[str, told("Kafka brokers, as host:port,host:port; or SLUICE_BOOTSTRAP.")] = (
        "127.0.0.1:9092"
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], told("How the brokers are reached.")
    ] = "PLAINTEXT"
    sasl_mechanism: (
        Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], told("How the job logs in.")] | None
    ) = None
    sasl_username: Annotated[str | None, told("The user that the job logs in as.")] = None
    sasl_password_file: Annotated[
        str | None, told("A file with the user's password or token; or SLUICE_SASL_PASSWORD.")
    ] = None
    ssl_ca_location: Annotated[
        str | None, told("Authorities of the brokers' certificates, a PEM file [those of the machine].")
    ] = None
    ssl_certificate_location: Annotated[str | None, told("The job's own certificate, a PEM file.")] = None
    ssl_key_location: Annotated[str | None, told("The key of that certificate, a PEM file.")] = None
    ssl_endpoint_identification_algorithm: Annotated[
        Literal["https", "none"], told("`none` accepts a certificate for another host.")
    ] = "https"
    name: Annotated[
        str | None, told("Name of the job; its state is kept under it [the job and its target].")
    ] = None
    state: Annotated[str, told("Where checkpoints are kept, and scratch files while a job runs.")] = (
        "sluice-spark"
    )
    master: Annotated[str, told("Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://….")] = "local[*]"
    spark: Annotated[dict[str, str], told("A setting of Spark, as key=value.")] = {}
    metrics_port: (
        Annotated[int, told("Serve Prometheus metrics on this port; 0 chooses one.", ge=0, le=65535)] | None
    ) = None

    @property
    def job(self) -> str:
        """The job's kind, as in `sluice spark run KIND`."""
        return str(self.__struct_config__.tag)

    def target(self) -> str:
        """What the job writes: part of its name when it is given none."""
        return ""

    def title(self) -> str:
        """The job's name; the default holds only what may stand in a path."""
        return self.name or re.sub(r"[^\w.-]+", "-", f"{self.job}-{self.target()}").strip("-")

    def check(self) -> None:
        """A ValueError for what contradicts itself."""
        if self.name is not None and not re.fullmatch(r"[\w.-]{1,100}", self.name):
            raise ValueError("name may have letters, digits, `.`, `_` and `-`, at most 100")
        for address in self.bootstrap.split(","):
            if not re.fullmatch(r"\s*\S+:\d+\s*", address):
                raise ValueError(
                    f"bootstrap is {self.bootstrap!r}; it is host:port, or several separated by commas"
                )

    def __post_init__(self) -> None:
        self.check()


class Streaming(Job, kw_only=True):
    """The settings of every job that follows topics."""

    topics: Topics = []
    pattern: Annotated[str | None, told("A regular expression of topic names, instead of topics.")] = None
    starting: Annotated[
        str,
        told('Where the first run begins: earliest, latest, or JSON such as {"orders":{"0":23}}.'),
    ] = "earliest"
    max_offsets_per_trigger: Annotated[int, told("Records of one micro-batch, at most.", ge=1)] | None = None
    once: Annotated[bool, told("Do what is there, then end.")] = False
    interval: Annotated[str | None, told("Start a micro-batch so often [as soon as the last is done].")] = (
        None
    )
    group: Annotated[str | None, told("A consumer group to commit progress to, so that lag can be seen.")] = (
        None
    )
    source: Annotated[dict[str, str], told("A further option of the source, as key=value.")] = {}

    def check(self) -> None:
        """Which topics, and how often."""
        super().check()
        if bool(self.topics) == bool(self.pattern):
            raise ValueError("give topics or a pattern, and not both")
        if self.once and self.interval:
            raise ValueError("give once or interval, and not both")
        check_source(self.source)
        check_pattern(self.pattern)
        check_duration("interval", self.interval)
        if self.starting not in ("earliest", "latest"):
            check_starting(self.starting)


def check_starting(text: str) -> dict[str, dict[str, int]]:
    """The offsets in a JSON text; a ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        message = f'starting is {text!r}; it is earliest, latest, or JSON such as {{"orders":{{"0":23}}}}'
        raise ValueError(message) from None


class Export(Streaming, kw_only=True, tag="export"):
    """Topics → Parquet, Delta or Iceberg: every record once, for every reader."""

    to: Annotated[str, told("The table's directory; for Iceberg the warehouse.", min_length=1)]
    format: Annotated[Literal["parquet", "delta", "iceberg"], told("The kind of table.")] = "parquet"
    table: Annotated[str | None, told("Iceberg only: the table as namespace.name.")] = None
    mode: Annotated[
        Literal["raw", "json", "variant"], told("Bytes as they are, typed columns, or one variant.")
    ] = "raw"
    schema: Annotated[str | None, told("Mode json: the columns, as `id BIGINT, total DOUBLE`.")] = None
    unknown_fields: Annotated[
        Literal["ignore", "keep", "reject"],
        told("Mode json: members that the schema lacks. `keep` stores the whole text in _value."),
    ] = "ignore"
    partition_by: Annotated[
        list[str], told("year, month, day, hour (of the timestamp, UTC) or a column.")
    ] = []
    on_error: Annotated[
        Literal["suspend", "skip", "quarantine"],
        told("A record that cannot be decoded: stop, leave out, put aside."),
    ] = "suspend"
    dead_letter: Annotated[str | None, told("The topic for bad records, with the reason in headers.")] = None

    def target(self) -> str:
        """The table."""
        return f"{self.to}-{self.table}" if self.table else self.to

    def check(self) -> None:
        """What belongs together."""
        super().check()
        check_table(self.format, self.table)
        if (self.mode == "json") != (self.schema is not None):
            raise ValueError(
                "mode json needs a schema such as `id BIGINT, total DOUBLE`, and the others have none"
            )
        if self.mode != "json" and self.unknown_fields != "ignore":
            raise ValueError("unknown_fields is for mode json")
        if self.mode == "variant" and self.format != "parquet":
            raise ValueError("mode variant is for format parquet")
        if self.mode == "raw" and self.on_error != "suspend":
            raise ValueError("mode raw decodes nothing, so on_error has nothing to do")
        if (self.on_error == "quarantine") != (self.dead_letter is not None):
            raise ValueError("on_error quarantine needs a dead_letter topic, and the others have none")
        if self.dead_letter is not None and self.dead_letter in self.topics:
            raise ValueError("the dead_letter topic is one of the topics that are read")
        check_pattern(self.pattern, self.dead_letter)
        if "://" in self.to and not self.to.startswith("file://"):
            raise ValueError(
                f"to is {self.to!r}; a table is a directory that driver and workers see under one path"
            )
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ValueError("partition_by names a column twice")


class Lake(Job, kw_only=True):
    """The settings of every job that reads a table."""

    lake: Annotated[str, told("The table's directory; for Iceberg the warehouse.", min_length=1)]
    format: Annotated[Literal["parquet", "delta", "iceberg"], told("The kind of table.")] = "parquet"
    table: Annotated[str | None, told("Iceberg only: the table as namespace.name.")] = None

    def target(self) -> str:
        """The table."""
        return f"{self.lake}-{self.table}" if self.table else self.lake

    def check(self) -> None:
        """What belongs together."""
        super().check()
        check_table(self.format, self.table)


def check_table(format_: str, table: str | None) -> None:
    """A ValueError unless Iceberg, and it alone, names a table."""
    if (format_ == "iceberg") != (table is not None):
        raise ValueError("format iceberg needs a table as namespace.name, and the others have none")
    if table is not None and not _TABLE.match(table):
        raise ValueError(f"table is {table!r}; it is namespace.name")


class Verify(Lake, kw_only=True, tag="verify"):
    """Reconcile a table with its topics: gaps, duplicates, counts per partition."""

    topics: Annotated[list[str], told("Only this topic; repeat it for more [all that the table holds].")] = []
    compacted: Annotated[bool, told("Gaps are expected: the topic is compacted, or holds transactions.")] = (
        False
    )
    dead_letter: Annotated[str | None, told("Count what was put aside into this topic as well.")] = None
    complete: Annotated[bool, told("The table must hold all that the topic holds now, from its start.")] = (
        False
    )


class Replay(Lake, kw_only=True, tag="replay"):
    """A table → a topic, with keys, headers and timestamps, in the order of each partition."""

    topic: Annotated[str, told("The topic to write.", min_length=1)]
    only: Annotated[list[str], told("Only what came from this topic; repeat it for more [all].")] = []
    since: Annotated[str | None, told("Records from this time on, as 2025-01-31T12:00Z.")] = None
    until: Annotated[str | None, told("Records before this time.")] = None
    rate: Annotated[float, told("Records per second, at most.", gt=0)] | None = None
    keep_partitions: Annotated[
        bool, told("Write into the partition that a record came from [by its key].")
    ] = False
    new_timestamps: Annotated[bool, told("Stamp records with the time of the replay.")] = False
    no_origin: Annotated[bool, told("Leave out the headers that name where a record came from.")] = False

    def target(self) -> str:
        """The topic."""
        return self.topic

    def check(self) -> None:
        """A time range that holds something."""
        super().check()
        since, until = moment("since", self.since), moment("until", self.until)
        if since is not None and until is not None and since >= until:
            raise ValueError("since is not before until")


def moment(name: str, text: str | None) -> datetime.datetime | None:
    """A time of the settings; without an offset it is UTC. A ValueError if it is none."""
    if text is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it is a time such as 2025-01-31T12:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


class Dedup(Streaming, kw_only=True, tag="dedup"):
    """Topics → a topic without what came before, by key or id, within a horizon."""

    to: Annotated[str, told("The topic to write.", min_length=1)]
    by: Annotated[str, told("key, value, or a JSON path of the value such as $.id.")] = "key"
    horizon: Annotated[str, told("How long an id is remembered, by record timestamps, such as `1 hour`.")] = (
        "1 hour"
    )

    def target(self) -> str:
        """The topic."""
        return self.to

    def check(self) -> None:
        """No circle, and an id that can be found."""
        super().check()
        check_duration("horizon", self.horizon)
        if self.by not in ("key", "value") and not self.by.startswith("$."):
            raise ValueError(f"by is {self.by!r}; it is key, value, or a JSON path such as $.id")
        if self.to in self.topics:
            raise ValueError("the topic to write is one of the topics that are read")
        check_pattern(self.pattern, self.to)


class Aggregate(Streaming, kw_only=True, tag="aggregate"):
    """Windowed aggregates of a JSON topic → a topic."""

    to: Annotated[str, told("The topic to write.", min_length=1)]
    schema: Annotated[str, told("The fields of the values, as `id BIGINT, total DOUBLE`.")]
    compute: Annotated[
        list[str], told("An aggregate, as `sum(total) AS total`; repeat it for more.", min_length=1)
    ]
    by: Annotated[list[str], told("A field to group by; repeat it for more.")] = []
    window: Annotated[str, told("Length of a window, such as `1 minute`.")] = "1 minute"
    slide: Annotated[str | None, told("A window begins so often [its length].")] = None
    late: Annotated[str, told("How late a record may come before its window is closed.")] = "1 minute"
    time_field: Annotated[str | None, told("A TIMESTAMP field to go by [the record's timestamp].")] = None
    emit: Annotated[
        Literal["closed", "changed"], told("Windows once they are closed, or at each change.")
    ] = "closed"
    on_error: Annotated[
        Literal["suspend", "skip"], told("A record that cannot be decoded: stop, or leave out.")
    ] = "suspend"

    def target(self) -> str:
        """The topic."""
        return self.to

    def check(self) -> None:
        """No circle, and times that are times."""
        super().check()
        for name in ("window", "slide", "late"):
            check_duration(name, getattr(self, name))
        if self.to in self.topics:
            raise ValueError("the topic to write is one of the topics that are read")
        check_pattern(self.pattern, self.to)


class Snapshot(Job, kw_only=True, tag="snapshot"):
    """The latest value of each key as a table: compaction at scale."""

    topics: Annotated[list[str], told("A topic to read; repeat it for more.", min_length=1)]
    to: Annotated[str, told("The table's directory; for Iceberg the warehouse.", min_length=1)]
    format: Annotated[Literal["parquet", "delta", "iceberg"], told("The kind of table.")] = "parquet"
    table: Annotated[str | None, told("Iceberg only: the table as namespace.name.")] = None
    schema: Annotated[str | None, told("Values are JSON with these fields [bytes as they are].")] = None
    on_error: Annotated[
        Literal["suspend", "skip"], told("A value that cannot be decoded: stop, or leave out.")
    ] = "suspend"

    def target(self) -> str:
        """The table."""
        return f"{self.to}-{self.table}" if self.table else self.to

    def check(self) -> None:
        """What belongs together."""
        super().check()
        check_table(self.format, self.table)


class Usage(Job, kw_only=True, tag="usage"):
    """Volume, lag, skew and throughput per topic, partition and group."""

    topics: Annotated[list[str], told("A topic to look at; repeat it for more [all].")] = []
    pattern: Annotated[str | None, told("A regular expression of topic names, instead of topics.")] = None
    since: Annotated[str | None, told("Records from this time on, as 2025-01-31T12:00Z [all].")] = None
    keys: Annotated[bool, told("Look at keys as well: how many, and the share of the most frequent.")] = False

    def check(self) -> None:
        """Topics or a pattern."""
        super().check()
        if self.topics and self.pattern:
            raise ValueError("give topics or a pattern, and not both")
        check_pattern(self.pattern)
        moment("since", self.since)
