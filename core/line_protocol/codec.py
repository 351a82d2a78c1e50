"""The line protocol, version 1: lines ↔ typed commands, answers ↔ lines. No socket, no clock, no disk.

    request    V1|<correlation id>|<command>|<args>
    answer     V1|<correlation id>|OK                       V1|<correlation id>|OK|<payload>
               V1|<correlation id>|ERR|<code>|<message>

A request has always four fields, so PING is written `V1|1|PING|`. A line ends with LF or CR LF. The answer to a line
that is no request has the correlation id 0.

Requests. Words (topics, groups, consumers) are UTF-8 without blanks and `|`. A message is `<key>:<value>`: the key
ends at the first colon, the value is the rest of the line with its blanks and colons, any bytes but LF, `|` and a CR
at the very end. An empty key is a null key. The last word is the ack mode if it begins with `acks=`, so a value that
ends in such a word needs the real ack mode after it.

Answers. `messages=` lists values that any client may have written. Percent-encoded are therefore control characters,
commas, `|`, bytes that are not UTF-8, a blank before a word with `=` (the next field), and a `%` that two hexadecimal
digits follow. Everything else is shown as it is; percent-decoding always returns the bytes. A null value is shown
like an empty one.

Source: the text of the protocol, version V1, and its validation rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

VERSION: Final = b"V1"
# The correlation id of the answer to a line that is no request.
NO_ID: Final = b"0"

BAD_REQUEST: Final = "BAD_REQUEST"
UNKNOWN_COMMAND: Final = "UNKNOWN_COMMAND"
REPLICATION_TIMEOUT: Final = "REPLICATION_TIMEOUT"
NOT_LEADER: Final = "NOT_LEADER"
GENERATION_MISMATCH: Final = "GENERATION_MISMATCH"

# Payloads that are always the same.
HEARTBEAT_OK: Final = "heartbeat=ok"
LEFT: Final = "left=true"
COMMITTED: Final = "committed=true"

ACKS: Final = {b"acks=0": 0, b"acks=1": 1, b"acks=all": -1}
ASSIGNORS: Final = ("round_robin", "range")

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_LARGEST = 2**63 - 1
# Text that would be read as syntax in a list of values, or that ends a line.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f-\x9f,|\udc80-\udcff]|%(?=[0-9A-Fa-f]{2})| (?=[A-Za-z_]+=)")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f|\udc80-\udcff]")
# Characters of an invalid word that an error message shows.
_SHOWN = 60
# Characters of an error message: it may repeat a name that is as long as a line.
_LONGEST_MESSAGE = 500


class LineError(Exception):
    """A line is no request. Carries the correlation id, code and message of the answer."""

    def __init__(self, message: str, code: str = BAD_REQUEST, correlation_id: bytes = NO_ID) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.correlation_id = correlation_id


# --- commands --------------------------------------------------------------------------------------------------


class Produce(NamedTuple):
    """Append one message. `acks` as in Kafka: 0, 1, −1 for all. `key` None is a null key."""

    topic: str
    key: bytes | None
    value: bytes
    acks: int


class Consume(NamedTuple):
    """Read from an offset up to the high watermark."""

    topic: str
    partition: int
    offset: int


class Join(NamedTuple):
    """Join a group. `assignor` is the strategy to vote for, empty for none."""

    group: str
    topic: str
    consumer_id: str
    assignor: str


class Member(NamedTuple):
    """Name a member of one generation: the args of SYNC, HEARTBEAT and LEAVE."""

    group: str
    topic: str
    consumer_id: str
    generation: int


class Commit(NamedTuple):
    """Commit the offset that the group reads next."""

    group: str
    topic: str
    consumer_id: str
    generation: int
    partition: int
    offset: int


class Offset(NamedTuple):
    """Get the committed offset."""

    group: str
    topic: str
    partition: int


class ReplicaFetch(NamedTuple):
    """Report that a follower has all records below `offset`. Replica 0 is the leader."""

    topic: str
    partition: int
    replica_id: int
    offset: int


class SetPartitionRole(NamedTuple):
    """Make this broker the leader or a follower of a partition."""

    topic: str
    partition: int
    role: Literal["leader", "follower"]


class Create(NamedTuple):
    """Create a topic; None means the broker's default."""

    topic: str
    partitions: int | None
    replication_factor: int | None


class Topics(NamedTuple):
    """List the topics whose names begin with `prefix`."""

    prefix: str


class Help(NamedTuple):
    """List the commands, or show the usage of one."""

    command: str


class Ping(NamedTuple):
    """Answer OK."""


Command = (
    Produce
    | Consume
    | Join
    | Member
    | Commit
    | Offset
    | ReplicaFetch
    | SetPartitionRole
    | Create
    | Topics
    | Help
    | Ping
)


class Request(NamedTuple):
    """One parsed line. `name` is the word of the command."""

    correlation_id: bytes
    name: str
    command: Command


def parse(line: bytes) -> Request:
    """Parse a line, given without its end. Raises LineError."""
    fields = line.split(b"|")
    if len(fields) != 4:
        raise LineError(f"a line has four fields, separated by three bars; this one has {len(fields)}")
    version, correlation_id, word, args = fields
    if version != VERSION:
        raise LineError(f"the version must be V1, not {_shown(version)}")
    if not correlation_id:
        raise LineError("the correlation id is empty")
    if not word:
        raise LineError("the command is empty")
    try:
        name = word.decode()
        reader = COMMANDS.get(name)
        if reader is None:
            raise LineError(f"there is no command {_shown(word)}; HELP lists them", UNKNOWN_COMMAND)
        return Request(correlation_id, name, reader.read(args))
    except UnicodeDecodeError:
        error = LineError("a word is no UTF-8")
    except LineError as found:
        error = found
        if reader is not None:
            error.message += f"; {name} is written: {name} {reader.usage}".rstrip()
    error.correlation_id = correlation_id
    raise error


def _shown(word: bytes) -> str:
    text = word.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _number(word: bytes, name: str) -> int:
    if _NUMBER.fullmatch(word):
        number = int(word)
        if -_LARGEST <= number <= _LARGEST:
            return number
    raise LineError(f"{name} must be a whole number, not {_shown(word)}")


def _words(args: bytes, count: int) -> list[bytes]:
    words = args.split()
    if len(words) != count:
        raise LineError(f"{count} words are needed, {len(words)} are there")
    return words


def _produce(args: bytes) -> Produce:
    topic, _, message = args.lstrip().partition(b" ")
    acks = 1
    before, _, last = message.rpartition(b" ")
    if before and last.startswith(b"acks="):
        if last not in ACKS:
            raise LineError(f"the ack mode must be acks=0, acks=1 or acks=all, not {_shown(last)}")
        message, acks = before, ACKS[last]
    key, colon, value = message.partition(b":")
    if not colon:
        raise LineError("the message must be <key>:<value>")
    return Produce(topic.decode(), key or None, value, acks)


def _consume(args: bytes) -> Consume:
    topic, partition, offset = _words(args, 3)
    return Consume(topic.decode(), _number(partition, "partition"), _number(offset, "offset"))


def _join(args: bytes) -> Join:
    words = args.split()
    assignor = ""
    if len(words) == 4:
        option = words.pop().decode()
        assignor = option.removeprefix("assignor=")
        if assignor == option or assignor not in ASSIGNORS:
            raise LineError("the fourth word can be assignor=round_robin or assignor=range alone")
    if len(words) != 3:
        raise LineError(f"3 words are needed, {len(words)} are there")
    group, topic, consumer_id = words
    return Join(group.decode(), topic.decode(), consumer_id.decode(), assignor)


def _member(args: bytes) -> Member:
    group, topic, consumer_id, generation = _words(args, 4)
    return Member(group.decode(), topic.decode(), consumer_id.decode(), _number(generation, "generation"))


def _commit(args: bytes) -> Commit:
    group, topic, consumer_id, generation, partition, offset = _words(args, 6)
    return Commit(
        group.decode(),
        topic.decode(),
        consumer_id.decode(),
        _number(generation, "generation"),
        _number(partition, "partition"),
        _number(offset, "offset"),
    )


def _offset(args: bytes) -> Offset:
    group, topic, partition = _words(args, 3)
    return Offset(group.decode(), topic.decode(), _number(partition, "partition"))


def _replica_fetch(args: bytes) -> ReplicaFetch:
    topic, partition, replica_id, offset = _words(args, 4)
    return ReplicaFetch(
        topic.decode(),
        _number(partition, "partition"),
        _number(replica_id, "replica_id"),
        _number(offset, "offset"),
    )


def _set_partition_role(args: bytes) -> SetPartitionRole:
    topic, partition, role = _words(args, 3)
    number = _number(partition, "partition")
    if role == b"leader":
        return SetPartitionRole(topic.decode(), number, "leader")
    if role == b"follower":
        return SetPartitionRole(topic.decode(), number, "follower")
    raise LineError(f"the role must be leader or follower, not {_shown(role)}")


def _create(args: bytes) -> Create:
    topic, *options = args.split() or [b""]
    known: dict[bytes, int | None] = {b"partitions": None, b"replication_factor": None}
    for option in options:
        name, _, value = option.partition(b"=")
        if name not in known or known[name] is not None:
            raise LineError(f"{_shown(option)} is neither partitions=<n> nor replication_factor=<n>")
        known[name] = _number(value, name.decode())
    if not topic:
        raise LineError("a topic must be named")
    return Create(topic.decode(), known[b"partitions"], known[b"replication_factor"])


def _topics(args: bytes) -> Topics:
    words = args.split()
    if len(words) > 1:
        raise LineError(f"one word at most, {len(words)} are there")
    return Topics(words[0].decode() if words else "")


def _help(args: bytes) -> Help:
    words = args.split()
    if len(words) > 1:
        raise LineError(f"one word at most, {len(words)} are there")
    command = words[0].decode() if words else ""
    if command and command not in COMMANDS:
        raise LineError(f"there is no command {_shown(words[0])}")
    return Help(command)


def _ping(args: bytes) -> Ping:
    _words(args, 0)
    return Ping()


class Reader(NamedTuple):
    """The function that parses the args of a command, and the usage text that describes them."""

    read: Callable[[bytes], Command]
    usage: str


_MEMBER = "<group> <topic> <consumer_id> <generation>"
COMMANDS: Final[dict[str, Reader]] = {
    "PRODUCE": Reader(_produce, "<topic> <key>:<value> [acks=0,1,all]"),
    "CONSUME": Reader(_consume, "<topic> <partition> <offset>"),
    "JOIN": Reader(_join, "<group> <topic> <consumer_id> [assignor=round_robin,range]"),
    "SYNC": Reader(_member, _MEMBER),
    "HEARTBEAT": Reader(_member, _MEMBER),
    "LEAVE": Reader(_member, _MEMBER),
    "COMMIT": Reader(_commit, f"{_MEMBER} <partition> <offset>"),
    "OFFSET": Reader(_offset, "<group> <topic> <partition>"),
    "REPLICA_FETCH": Reader(_replica_fetch, "<topic> <partition> <replica_id> <offset>"),
    "SET_PARTITION_ROLE": Reader(_set_partition_role, "<topic> <partition> <leader,follower>"),
    "PING": Reader(_ping, ""),
    "CREATE": Reader(_create, "<topic> [partitions=<n>] [replication_factor=<n>]"),
    "TOPICS": Reader(_topics, "[<prefix>]"),
    "HELP": Reader(_help, "[<command>]"),
}


# --- answers ---------------------------------------------------------------------------------------------------


def ok(correlation_id: bytes, payload: str = "") -> bytes:
    """Return the line of an answer; without a payload it has three fields."""
    if not payload:
        return b"V1|%b|OK\n" % correlation_id
    return b"V1|%b|OK|%b\n" % (correlation_id, payload.encode())


def refused(correlation_id: bytes, code: str, message: str) -> bytes:
    """Return the line of an error. `|` and control characters in the message become blanks; a long message is cut."""
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    shown = _UNPRINTABLE.sub(" ", message).encode("utf-8", "replace")
    return b"V1|%b|ERR|%b|%b\n" % (correlation_id, code.encode(), shown)


def produced(partition: int, offset: int, high_watermark: int) -> str:
    """Return the payload of PRODUCE."""
    return f"partition={partition} offset={offset} hw={high_watermark}"


def messages(found: Iterable[tuple[int, bytes | None]], high_watermark: int) -> str:
    """Return the payload of CONSUME; `found` are offsets and values."""
    listed = ",".join([f"{offset}:{shown(value)}" for offset, value in found])
    return f"messages={listed} hw={high_watermark}"


def shown(value: bytes | None) -> str:
    """Return a value as a list of messages shows it."""
    if not value:
        return ""
    return _AMBIGUOUS.sub(_percent, value.decode("utf-8", "surrogateescape"))


def _percent(found: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape")])


def assigned(generation: int, partitions: Sequence[int]) -> str:
    """Return the payload of JOIN and SYNC."""
    return f"generation={generation} assigned={_list(partitions)}"


def committed(offset: int) -> str:
    """Return the payload of OFFSET; −1 if the group has no committed offset."""
    return f"offset={offset}"


def replica_fetched(
    replica_id: int, acked_offset: int, high_watermark: int, isr: Sequence[int], under_replicated: bool
) -> str:
    """Return the payload of REPLICA_FETCH."""
    return (
        f"replica={replica_id} acked_offset={acked_offset} hw={high_watermark} isr={_list(isr)} "
        f"under_replicated={'true' if under_replicated else 'false'}"
    )


def role_set(topic: str, partition: int, role: str, high_watermark: int) -> str:
    """Return the payload of SET_PARTITION_ROLE."""
    return f"topic={topic} partition={partition} role={role} hw={high_watermark}"


def created(topic: str, partitions: int, replication_factor: int) -> str:
    """Return the payload of CREATE."""
    return f"topic={topic} partitions={partitions} replication_factor={replication_factor}"


def listing(topics: Iterable[tuple[str, int]]) -> str:
    """Return the payload of TOPICS; `topics` are names and numbers of partitions."""
    return "topics=" + ",".join([f"{name}:{partitions}" for name, partitions in topics])


def usage(command: str) -> str:
    """Return the payload of HELP."""
    if not command:
        return "commands=" + ",".join(COMMANDS)
    return f"usage={command} {COMMANDS[command].usage}".rstrip()


def _list(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"
