"""The options of the source, read once and strictly: Spark's Kafka names, and a few of our own.

Whatever is not known, not readable or contradicts something else is an error before anything is read. Spark hands
option names over in lower case; messages show them as they are documented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline import limits
from pipeline.decode import columns as c
from pipeline.wire.cluster import ClientSettings, TopicPartition
from pipeline.wire.connection import Timeouts
from pipeline.wire.security import MECHANISMS, Login, Security, Tls


class OptionError(ValueError):
    """An option is unknown, unreadable, missing, or contradicts another; the message names it."""


SASL = ("kafka.sasl.mechanism", "kafka.sasl.username", "kafka.sasl.password", "kafka.sasl.password.file")
SSL = (
    "kafka.ssl.ca.location", "kafka.ssl.certificate.location", "kafka.ssl.key.location",
    "kafka.ssl.endpoint.identification.algorithm",
)  # fmt: skip
SECURITY = ("kafka.security.protocol", *SASL, *SSL)
"""Settings of TLS and the login, by the names of librdkafka; they may be given without `kafka.` too."""

# Settings of the Java client that are refused with what to use. The first one holds a password under a name by which
# Spark does not recognize it: Spark would print it in plans.
_INSTEAD = {
    "sasl.jaas.config": "kafka.sasl.username and kafka.sasl.password",
    "ssl.truststore.": "kafka.ssl.ca.location, a file in PEM format",
    "ssl.keystore.": "kafka.ssl.certificate.location and kafka.ssl.key.location, files in PEM format",
    "ssl.key.password": "a key without a password that its user alone may read",
}

KAFKA = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes", "kafka.isolation.level", *SECURITY,
)  # fmt: skip
"""Settings of the client, by the names of the Java client."""

STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
SELECTING = ("subscribe", "subscribePattern", "assign")
ADMISSION = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
READING = (
    *KAFKA, *SELECTING, *STARTING, "startingOffsetsByTimestampStrategy", *ENDING, *ADMISSION, "minPartitions",
    "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "transport", "dataDir", "columns", "pushdown",
    "maxTasks", "commitGroup",
)  # fmt: skip
"""Every option of a read."""

_TIME_UNITS = {
    "": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0,
}  # fmt: skip
_DEFAULT_DELAY = "15m"


class Start(NamedTuple):
    """Where reading begins or ends: one position for all partitions, or one for each.

    `by_time` says that positions are timestamps in ms; else they are offsets, LATEST or EARLIEST. `strict` asks for
    an error where no record is as young as a timestamp; else the end is taken.
    """

    position: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    by_time: bool = False
    strict: bool = False
    option: str = ""


@dataclass(frozen=True)
class ReadOptions:
    """All that a read was asked for. Picklable."""

    settings: ClientSettings
    columns: tuple[str, ...]
    start: Start
    end: Start
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    fail_on_data_loss: bool = True
    transport: str = "wire"
    data_dir: str | None = None
    pushdown: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_tasks: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    commit_group: str | None = None


class Given:
    """The options as the user gave them. Each is read once, and unknown ones are refused."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        short = {name.removeprefix("kafka."): name for name in SECURITY if name in names}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = names.get(key.lower()) or short.get(key.lower())
            if name is None:
                _refuse_java(key.lower().removeprefix("kafka."))
                raise OptionError(
                    f"unknown option {key!r}; the options are {', '.join(sorted(names.values()))}"
                )
            if name in self._values:
                raise OptionError(
                    f"{name} and {name.removeprefix('kafka.')} are one option: give one of them"
                )
            self._values[name] = str(value)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the option as text."""
        return self._values.get(name, default)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """The option, which must be one of `choices`; the first is the default."""
        value = self._values.get(name, choices[0]).lower()
        if value not in choices:
            raise OptionError(f"{name} must be {' or '.join(choices)}, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """The option as true or false."""
        return self.one_of(name, ("true", "false") if default else ("false", "true")) == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        """The option as a whole number, at least `least`; None where it was not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise OptionError(f"{name} must be a whole number, not {value!r}") from None
        if number < least:
            raise OptionError(f"{name} must be at least {least}, not {number}")
        return number

    def rate(self, name: str) -> float | None:
        """The option as a number above 0; None where it was not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            raise OptionError(f"{name} must be a number, not {value!r}") from None
        if not 0 < number < float("inf"):
            raise OptionError(f"{name} must be above 0, not {value}")
        return number

    def only_one(self, names: tuple[str, ...]) -> str | None:
        """Which of options that exclude each other was given, if any."""
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)} contradict each other: give one of them")
        return given[0] if given else None


def _refuse_java(name: str) -> None:
    """Raise OptionError for a setting of the Java client that has another name here; its value is not repeated."""
    for known, instead in _INSTEAD.items():
        if name == known or (known.endswith(".") and name.startswith(known)):
            raise OptionError(f"kafka.{name} is not supported: use {instead}")


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a read, checked. Raises OptionError."""
    given = Given(options, READING)
    _check_kind(given, streaming)
    topics, pattern, assign = _selection(given)
    columns = _columns(given)
    transport = given.one_of("transport", ("wire", "segments"))
    settings = client_settings(given)
    if given.has("dataDir") and transport != "segments":
        raise OptionError("dataDir is for transport=segments alone")
    read = ReadOptions(
        settings=settings,
        columns=columns,
        start=_start(given, streaming),
        end=_end(given),
        topics=topics,
        pattern=pattern,
        assign=assign,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        transport=transport,
        data_dir=given.text("dataDir"),
        pushdown=given.flag("pushdown", False),
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        max_tasks=given.number("maxTasks"),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger"),
        max_trigger_delay_s=duration("maxTriggerDelay", given.text("maxTriggerDelay") or _DEFAULT_DELAY),
        commit_group=given.text("commitGroup"),
    )
    _check_numbers(read, given)
    return read


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a read with these options has, whatever kind of read it is. Raises OptionError."""
    return _columns(Given(options, READING))


def _check_kind(given: Given, streaming: bool) -> None:
    wrong = (*ENDING, "pushdown") if streaming else (*ADMISSION, "commitGroup")
    for name in wrong:
        if given.has(name) and given.text(name) != "false":
            raise OptionError(f"{name} is not for {'streams' if streaming else 'batch reads'}")


def _check_numbers(read: ReadOptions, given: Given) -> None:
    least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
    if least and most and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    if given.has("maxTriggerDelay") and not least:
        raise OptionError("maxTriggerDelay means nothing without minOffsetsPerTrigger")
    if read.min_partitions and read.max_tasks and read.min_partitions > read.max_tasks:
        raise OptionError(f"minPartitions {read.min_partitions} is more than maxTasks {read.max_tasks}")
    if given.has("startingOffsetsByTimestampStrategy") and not read.start.by_time:
        raise OptionError("startingOffsetsByTimestampStrategy means nothing without a starting timestamp")
    if read.commit_group == "":
        raise OptionError("commitGroup must not be empty")


# --- the client -----------------------------------------------------------------------------------------------


def client_settings(given: Given) -> ClientSettings:
    """How to reach the cluster. Raises OptionError."""
    servers = given.text("kafka.bootstrap.servers")
    if not servers:
        raise OptionError("kafka.bootstrap.servers is missing: host:port, several separated by commas")
    levels = ("read_committed", "read_uncommitted")
    answer_ms = given.number("kafka.request.timeout.ms")
    retry_ms = given.number("kafka.default.api.timeout.ms", least=0)
    fetch_bytes = given.number("kafka.max.partition.fetch.bytes", least=1024)
    if fetch_bytes and fetch_bytes > limits.MAX_FRAME_BYTES // 2:
        raise OptionError(f"kafka.max.partition.fetch.bytes must be at most {limits.MAX_FRAME_BYTES // 2}")
    return ClientSettings(
        bootstrap=tuple(address(one.strip()) for one in servers.split(",")),
        client_id=given.text("kafka.client.id") or "sluice-spark",
        timeouts=Timeouts(answer=answer_ms / 1000) if answer_ms else Timeouts(),
        retry=limits.RETRY_TIMEOUT_S if retry_ms is None else retry_ms / 1000,
        fetch_bytes=fetch_bytes or limits.FETCH_BYTES,
        read_committed=given.one_of("kafka.isolation.level", levels) == "read_committed",
        security=_security(given),
    )


def _security(given: Given) -> Security:
    """TLS and login. Raises OptionError."""
    protocols = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
    protocol = given.one_of("kafka.security.protocol", protocols)
    for names, part in ((SASL, "sasl"), (SSL, "ssl")):
        for name in names:
            if part not in protocol.split("_") and given.has(name):
                raise OptionError(f"{name} means nothing with kafka.security.protocol {protocol.upper()}")
    return Security(
        tls=_tls(given) if "ssl" in protocol.split("_") else None,
        login=_login(given) if protocol.startswith("sasl") else None,
    )


def _tls(given: Given) -> Tls:
    # Empty is Java's word for no check, `none` librdkafka's.
    check = given.one_of("kafka.ssl.endpoint.identification.algorithm", ("https", "none", ""))
    certificate, key = given.text("kafka.ssl.certificate.location"), given.text("kafka.ssl.key.location")
    if key and not certificate:
        raise OptionError("kafka.ssl.key.location means nothing without kafka.ssl.certificate.location")
    return Tls(given.text("kafka.ssl.ca.location"), certificate, key, check == "https")


def _login(given: Given) -> Login:
    mechanism = (given.text("kafka.sasl.mechanism") or "").upper()
    if mechanism not in MECHANISMS:
        found = f", not {mechanism!r}" if mechanism else ""
        raise OptionError(f"kafka.sasl.mechanism must be {' or '.join(MECHANISMS)}{found}")
    user = given.text("kafka.sasl.username")
    secret = given.only_one(("kafka.sasl.password", "kafka.sasl.password.file"))
    if not user or secret is None or not given.text(secret):
        raise OptionError(
            "a login needs kafka.sasl.username, and kafka.sasl.password or kafka.sasl.password.file"
        )
    return Login(mechanism, user, given.text("kafka.sasl.password"), given.text("kafka.sasl.password.file"))


def address(text: str) -> tuple[str, int]:
    """host:port, `[v6]:port` too. Raises OptionError."""
    match = re.fullmatch(r"(?:[A-Z_]+://)?(\[[^\]]+\]|[^:\s]+):(\d{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65_536:
        raise OptionError(f"kafka.bootstrap.servers: {text!r} is no host:port")
    return match[1].strip("[]"), int(match[2])


def duration(name: str, text: str) -> float:
    """Seconds of a time such as 500ms, 30s, 15m, 2h; a bare number is ms, as in Spark. Raises OptionError."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _TIME_UNITS:
        raise OptionError(f"{name}: {text!r} is no time such as 500ms, 30s, 15m or 2h")
    return int(match[1]) * _TIME_UNITS[match[2]]


# --- what is read -----------------------------------------------------------------------------------------------


def _selection(
    given: Given,
) -> tuple[tuple[str, ...], str | None, Mapping[str, tuple[int, ...]] | None]:
    kind = given.only_one(SELECTING)
    if kind is None:
        raise OptionError("one of subscribe, subscribePattern and assign is needed: which topics to read")
    text = (given.text(kind) or "").strip()
    if kind == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise OptionError("subscribe names no topic")
        return names, None, None
    if kind == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern is no regular expression: {error}") from None
        return (), text, None
    return (), None, _assignment(text)


def _assignment(text: str) -> Mapping[str, tuple[int, ...]]:
    shape = 'assign must look like {"topic": [0, 1]}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{shape}: {error}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(shape)
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions or not all(map(_is_count, partitions)):
            raise OptionError(f"{shape}; that of {topic!r} is {partitions!r}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in found.items()}


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _columns(given: Given) -> tuple[str, ...]:
    headers = given.flag("includeHeaders", False)
    text = given.text("columns")
    if text is None:
        return tuple(name for name in c.ARROW_TYPES if name != c.HEADERS or headers)
    by_lower = {name.lower(): name for name in c.ARROW_TYPES}
    columns = []
    for name in (part.strip() for part in text.split(",")):
        if name.lower() not in by_lower:
            raise OptionError(f"columns: there is no column {name!r}; there are {', '.join(c.ARROW_TYPES)}")
        columns.append(by_lower[name.lower()])
    if len(set(columns)) != len(columns):
        raise OptionError(f"columns: a name occurs twice in {text!r}")
    if given.has("includeHeaders") and headers != (c.HEADERS in columns):
        raise OptionError(f"includeHeaders={str(headers).lower()} and columns={text} contradict each other")
    return tuple(columns)


# --- where reading begins and ends --------------------------------------------------------------------------------


def _start(given: Given, streaming: bool) -> Start:
    name = given.only_one(STARTING)
    if name is None:
        return Start(LATEST if streaming else EARLIEST)
    if name == "startingOffsets":
        start = _offsets(name, given.text(name) or "")
        if not streaming and start.position == LATEST:
            raise OptionError(
                "startingOffsets must not be latest in a batch read: there would be nothing to read"
            )
        return start
    strict = given.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "error"
    return _times(given, name, strict)


def _end(given: Given) -> Start:
    name = given.only_one(ENDING)
    if name is None:
        return Start(LATEST)
    if name == "endingOffsets":
        end = _offsets(name, given.text(name) or "")
        if end.position == EARLIEST or EARLIEST in (end.each or {}).values():
            raise OptionError("endingOffsets must not be earliest: there would be nothing to read")
        return end
    return _times(given, name, strict=False)


def _offsets(name: str, text: str) -> Start:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Start(EARLIEST if word == "earliest" else LATEST, option=name)
    each = _per_partition(name, text, least=EARLIEST)
    return Start(each=each, option=name)


def _times(given: Given, name: str, strict: bool) -> Start:
    if name.endswith("Timestamp") and "By" not in name:
        return Start(given.number(name, least=0), by_time=True, strict=strict, option=name)
    each = _per_partition(name, given.text(name) or "", least=0)
    return Start(each=each, by_time=True, strict=strict, option=name)


def _per_partition(name: str, text: str, least: int) -> Mapping[TopicPartition, int]:
    words = "earliest, latest or " if least < 0 else ""
    shape = f'{name} must be {words}JSON such as {{"topic": {{"0": 23}}}}'
    try:
        found = json.loads(text)
        each = {
            (topic, int(partition)): offset
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"{shape}, not {text!r}") from None
    for (topic, partition), offset in each.items():
        if type(offset) is not int or offset < least or partition < 0:
            raise OptionError(f"{shape}; that of {topic} partition {partition} is {offset!r}")
    return each
