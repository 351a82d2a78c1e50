"""kcat: a librdkafka of 2022 in a shell, one process per call."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Sequence

from tests.clients.driver import CALL_SECONDS, Driver, Message, RefusedError

# kcat prints the length of key and value (−1 for null) before their bytes, so that any bytes can be read.
FORMAT = r"%o %T %K %S %h\n%k%s\n"
_LINE = re.compile(rb"(-?\d+) (-?\d+) (-?\d+) (-?\d+) ([^\n]*)\n")
KEY_MARK = "|key|"


class Kcat(Driver):
    """The program, run once for each call."""

    name = "kcat"
    installed_as = "kcat"
    #: What every call has besides.
    settings: tuple[str, ...] = ()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    sets_timestamps = False
    binary_safe = False
    writes_empty = False

    def _run(self, *arguments: str, data: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", "-b", self.broker.kafka, *self.settings, *arguments],
            input=data,
            capture_output=True,
            timeout=CALL_SECONDS,
        )
        if done.returncode:
            raise RefusedError(None, done.stderr.decode(errors="replace"))
        return done.stdout

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        for headers, group in itertools.groupby(messages, lambda message: message.headers):
            lines = [
                (message.key or b"") + KEY_MARK.encode() + (message.value or b"") + b"\n" for message in group
            ]
            flags = [
                "-P",
                "-t",
                topic,
                "-p",
                str(partition),
                "-K",
                KEY_MARK,
                "-Z",
                "-z",
                codec,
                "-X",
                "acks=all",
            ]
            for name, value in headers:
                flags += ["-H", name if value is None else f"{name}={value.decode()}"]
            self._run(*flags, data=b"".join(lines))

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        output = self._run(
            "-C", "-q", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-f", FORMAT
        )
        found, position = [], 0
        while match := _LINE.match(output, position):
            start, timestamp, key_size, value_size = (int(number) for number in match.groups()[:4])
            position = match.end()
            parts: list[bytes | None] = []
            for size in (key_size, value_size):
                parts.append(output[position : position + size] if size >= 0 else None)
                position += max(size, 0)
            # kcat prints 0 where the format has no timestamp.
            timestamp = timestamp if self.message_format else -1
            found.append(Message(parts[0], parts[1], _headers(match[5]), timestamp, start))
            position += 1
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        output = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        offset = int(output.rsplit(" ", 1)[1])
        return offset if offset >= 0 else None

    def topics(self) -> dict[str, int]:
        listing = json.loads(self._run("-L", "-J"))
        return {topic["topic"]: len(topic["partitions"]) for topic in listing["topics"]}


def _headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as kcat prints them: `name=value,name=value`, NULL for null."""
    found = []
    for part in text.split(b",") if text else ():
        name, _, value = part.partition(b"=")
        found.append((name.decode(), None if value == b"NULL" else value))
    return tuple(found)


def _pinned(release: str) -> type[Driver]:
    """kcat that does not ask what the broker knows, but takes it for one of long ago.

    There is none for 0.10: from that release on librdkafka asks, whatever the settings say.
    """
    settings = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={release}")
    return type(
        "OldKcat",
        (Kcat,),
        {
            "__doc__": f"kcat that takes the broker for a {release}.",
            "name": f"kcat-as-{release}",
            "settings": settings,
            "message_format": 0,
            "codecs": ("none", "gzip", "snappy"),
            "offset_for_time": Driver.offset_for_time,
        },
    )


OLD_KCAT: tuple[type[Driver], ...] = (_pinned("0.8.2"), _pinned("0.9.0"))
