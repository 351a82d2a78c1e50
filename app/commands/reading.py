"""Records of a topic, from where one wants: a stream over all partitions, taken up again where it broke off.

A stream begins at an end, a time, offsets, or a cursor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from app.commands.bounds import Bounds, isolation, offsets_at
from app.commands.client import Client, topic_path
from app.commands.errors import RefusedError, UnreachableError
from app.commands.moments import Moment
from app.commands.record_output import ReadRecord, decode_record

NDJSON = "application/x-ndjson"
# The gateway sends a comment every 15 s. A stream without any for three times as long is lost.
SILENCE_SECONDS = 45.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
Chunk = list[ReadRecord]


@dataclass(frozen=True)
class Wanted:
    """Which records of a topic, and how they are to be encoded."""

    topic: str
    partitions: tuple[int, ...] | None = None
    encoding: str = "text"
    filters: Mapping[str, str] = field(default_factory=dict)
    follow: bool = False
    limit: int | None = None
    committed: bool = True

    def parameters(self) -> dict[str, str | int | None]:
        """As the merged read takes them, but for where to begin."""
        partitions = None if self.partitions is None else ",".join(map(str, self.partitions))
        return {
            "partitions": partitions,
            "encoding": self.encoding,
            **isolation(self.committed),
            **self.filters,
        }


class Reading:
    """Reads what is wanted. `cursor` is where a stream stands."""

    def __init__(self, client: Client, wanted: Wanted, note: Callable[[str], None]) -> None:
        self.cursor: str | None = None
        self._client = client
        self._wanted = wanted
        self._note = note
        self._path = topic_path(wanted.topic)
        self._left = wanted.limit
        # Seconds after which a gateway that stops wants to be called again.
        self._told_to_wait = 0.0

    def chunks(self, moment: Moment, cursor: str | None, bounds: Mapping[int, Bounds]) -> Iterator[Chunk]:
        """The records, some at a time, up to the limit; without `follow` up to the ends in `bounds`.

        An empty chunk says that nothing has come for a while.
        """
        if self._left == 0:
            return
        for chunk in self._unlimited(moment, cursor, bounds):
            if self._left is not None:
                chunk = chunk[: self._left]
                self._left -= len(chunk)
            yield chunk
            if self._left == 0:
                return

    def _unlimited(self, moment: Moment, cursor: str | None, bounds: Mapping[int, Bounds]) -> Iterator[Chunk]:
        ends = None if self._wanted.follow else {p: b.latest for p, b in bounds.items()}
        if cursor is not None:
            yield from self._stream(cursor=cursor, ends=ends)
        elif moment.kind in ("offset", "back"):
            yield from self._stream(begin=self._starts(moment, bounds), ends=ends)
        elif not self._wanted.follow:
            if moment.kind != "latest":
                yield from self._stream(begin={"from": moment.at}, ends=ends)
        elif moment.kind == "latest":
            # A cursor holds on to where the end was, whatever happens before the first record comes.
            yield from self._stream(cursor=self._cursor_at_end())
        else:
            yield from self._stream(begin={"from": moment.at})

    # --- from offsets --------------------------------------------------------------------------------------

    def _starts(self, moment: Moment, bounds: Mapping[int, Bounds]) -> dict[str, str]:
        """Where to begin in each partition, as the API's `offsets` has it."""
        found = offsets_at(self._client, self._wanted.topic, bounds, moment, committed=self._wanted.committed)
        starts = {p: self._within(p, offset, bounds[p]) for p, offset in found.items()}
        # The others begin at their first record anyway.
        late = {p: offset for p, offset in starts.items() if offset > bounds[p].earliest}
        return {"offsets": ",".join(f"{p}:{offset}" for p, offset in late.items())} if late else {}

    def _within(self, partition: int, offset: int, bounds: Bounds) -> int:
        if offset < bounds.earliest:
            self._note(
                f"Partition {partition} begins at offset {bounds.earliest}; earlier records are deleted."
            )
            return bounds.earliest
        if offset > bounds.latest:
            self._note(f"Partition {partition} ends at offset {bounds.latest}; there is no {offset} yet.")
            return bounds.latest
        return offset

    # --- streams -------------------------------------------------------------------------------------------

    def _cursor_at_end(self) -> str:
        page = self._client.get(
            f"{self._path}/records", {**self._wanted.parameters(), "from": "latest", "limit": 1}
        )
        return str(page["next_cursor"])

    def _stream(
        self,
        *,
        begin: Mapping[str, str] | None = None,
        cursor: str | None = None,
        ends: Mapping[int, int] | None = None,
    ) -> Iterator[Chunk]:
        """A stream, connected again for as long as it is followed. `ends` are where to stop instead."""
        self.cursor = cursor
        open_partitions = None if ends is None else {p for p, end in ends.items() if end > 0}
        connected = False
        pause = FIRST_PAUSE
        while True:
            wait = 0.0
            try:
                for chunk in self._connection(begin):
                    if not connected or pause > FIRST_PAUSE:
                        connected, pause = True, FIRST_PAUSE
                    yield _before(chunk, ends, open_partitions)
                    if open_partitions is not None and not open_partitions:
                        return
                    wait = self._told_to_wait
                if not self._wanted.follow:
                    return
            except UnreachableError as error:
                if not self._wanted.follow or not (connected or self.cursor):
                    raise
                if pause == FIRST_PAUSE:
                    self._note(f"{error.text} Trying again.")
            except RefusedError as error:
                if not self._can_continue(error, connected):
                    raise
            time.sleep(max(wait, pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _connection(self, begin: Mapping[str, str] | None) -> Iterator[Chunk]:
        params = self._wanted.parameters()
        if self.cursor is None:
            params |= begin or {}
        else:
            params["cursor"] = self.cursor
        params["limit"] = self._left
        if not self._wanted.follow:
            params["wait_ms"] = 0
        self._told_to_wait = 0.0
        with self._client.stream(
            f"{self._path}/records", params, accept=NDJSON, silence_seconds=SILENCE_SECONDS
        ) as chunks:
            # A connection that says nothing yet is one all the same.
            yield []
            for lines in chunks:
                yield [record for line in lines if line for record in self._record(line)]

    def _record(self, line: bytes) -> Chunk:
        """The record of a line, if it is one; what else it says is noted."""
        record = decode_record(line)
        if isinstance(record.cursor, str):
            self.cursor = record.cursor
        if isinstance(record.problem, dict):
            self._note(str(record.problem.get("detail", "Something could not be read.")))
            return []
        if isinstance(record.bye, dict):
            self._told_to_wait = float(record.bye.get("retry_ms", 0)) / 1000
            if self._wanted.follow:
                self._note("The gateway is stopping; connecting again.")
            return []
        return [record]

    def _can_continue(self, error: RefusedError, connected: bool) -> bool:
        """Return whether a stream that was refused at a reconnect can continue all the same."""
        if not self._wanted.follow or not connected:
            return False
        cursor = error.problem.get("next_cursor")
        if error.status in (410, 416) and isinstance(cursor, str):
            self._note(error.text)
            self.cursor = cursor
            return True
        return error.status in (429, 503)


def _before(chunk: Chunk, ends: Mapping[int, int] | None, open_partitions: set[int] | None) -> Chunk:
    """What lies before the ends; partitions that have reached theirs are taken out of the open ones."""
    if ends is None or open_partitions is None:
        return chunk
    for record in chunk:
        if record.offset >= ends.get(record.partition, 0) - 1:
            open_partitions.discard(record.partition)
    return [r for r in chunk if r.offset < ends.get(r.partition, 0)]
