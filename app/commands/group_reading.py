"""Records of a topic as a member of a group: a managed consumer, which the gateway keeps in the group.

A batch is acknowledged once it is printed, so that nothing is lost: records that were not acknowledged are delivered
again, to this reader or to another. A reader that ends leaves the group at once; the consumer of a killed reader is
deleted after `TTL_MS`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from app.commands.bounds import isolation
from app.commands.client import Answer, Client, group_path, segment
from app.commands.errors import CommandError, RefusedError, UnreachableError
from app.commands.moments import Moment
from app.commands.reading import FIRST_PAUSE, LONGEST_PAUSE, Chunk
from app.commands.record_output import ReadRecord

# So long the others wait for the partitions of a reader that was killed; so long its output may be held up.
TTL_MS = 60_000
FOLLOW_WAIT_MS = 20_000
# Without `follow` there is no answer to wait for but that of the group, which may take some seconds to agree.
AGREE_WAIT_MS = 250
BATCH_RECORDS = 500


class _Batch(msgspec.Struct):
    ack: str | None
    records: list[ReadRecord]
    state: str


_decode_batch = msgspec.json.Decoder(_Batch).decode


class GroupReading:
    """Reads as a member of a group; a context, whose end is acknowledgement and leave.

    The caller calls `printed` when a batch is passed to the output, before it takes the next one. `flush` is called
    before the last acknowledgement: records that could not be printed are not acknowledged.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topic: str,
        *,
        encoding: str,
        start: Moment,
        follow: bool,
        limit: int | None,
        committed: bool,
        note: Callable[[str], None],
        flush: Callable[[], None],
    ) -> None:
        self._client = client
        self._group = group
        self._wanted: dict[str, Any] = {
            "topics": [topic], "encoding": encoding, "start": start.at, "ttl_ms": TTL_MS,
            **isolation(committed),
        }  # fmt: skip
        self._follow = follow
        self._left = limit
        self._note = note
        self._flush = flush
        self._path = ""
        # The batch that was delivered last; and the one that was printed and is not known to be acknowledged.
        self._delivered: str | None = None
        self._ack: str | None = None

    def __enter__(self) -> GroupReading:
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._path:
            return
        try:
            if self._ack is not None:
                self._flush()
                self._client.send("POST", f"{self._path}:ack", body={"ack": self._ack})
        except CommandError as error:
            self._note(f"What was printed last could not be acknowledged and will come again: {error.text}")
        except OSError:
            # The batch was not printed, so it is delivered again. The command prints the reason.
            pass
        # A consumer that cannot be deleted now expires later.
        with contextlib.suppress(CommandError):
            self._client.send("DELETE", self._path, patient=False)

    def chunks(self) -> Iterator[Chunk]:
        """The records, a batch at a time; an empty one when nothing has come for a while."""
        while self._left != 0:
            batch = self._poll()
            if batch is None:
                continue
            self._delivered = batch.ack
            yield batch.records
            if self._left is not None:
                self._left -= len(batch.records)
            if not batch.records and not self._follow and batch.state != "joining":
                return

    def printed(self) -> None:
        """The batch is on its way out: Ctrl-C from now on still acknowledges it."""
        self._ack = self._delivered

    def _join(self) -> None:
        path = f"{group_path(self._group)}/consumers"
        # The description of the group shows this name.
        name = f"sluice-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        made = self._client.send("POST", path, body={"name": name, **self._wanted}).data
        self._path = f"{path}/{segment(made['name'])}"
        self._ack = None

    def _poll(self) -> _Batch | None:
        """Return the next batch, or None if the consumer had to be created again."""
        wait_ms = FOLLOW_WAIT_MS if self._follow else AGREE_WAIT_MS
        body: dict[str, Any] = {
            "limit": BATCH_RECORDS if self._left is None else min(BATCH_RECORDS, self._left),
            "wait_ms": wait_ms,
        }
        if self._ack is not None:
            body["ack"] = self._ack
        try:
            answer = self._patiently(body, wait_ms)
        except RefusedError as error:
            if error.problem.get("kafka_error") != "RESOURCE_NOT_FOUND":
                raise
            self._note(
                "This reader was idle for too long and joins its group again. Some records may be delivered again."
            )
            self._join()
            return None
        self._ack = None
        return _decode_batch(answer.content)

    def _patiently(self, body: dict[str, Any], wait_ms: int) -> Answer:
        """A poll. Following, one that is lost is repeated: until its batch is acknowledged, it comes again."""
        pause = FIRST_PAUSE
        while True:
            try:
                return self._client.send("POST", f"{self._path}:poll", body=body, wait_ms=wait_ms)
            except UnreachableError as error:
                if not self._follow:
                    raise
                if pause == FIRST_PAUSE:
                    self._note(f"{error.text} Trying again.")
            except RefusedError as error:
                if not self._follow or error.status not in (429, 503):
                    raise
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
