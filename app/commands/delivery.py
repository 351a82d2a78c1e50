"""Sending records in batches, one after the other, so that their order is kept.

A batch is sent again only where that cannot write it twice: when it never left, when the gateway refused it
before doing anything, or when the gateway knows it by its Idempotency-Key.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.commands.client import Client, topic_path
from app.commands.errors import CommandError, RefusedError, UnreachableError
from app.commands.record_input import Outgoing
from app.commands.text import counted

NDJSON = "application/x-ndjson"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
# Refusals of single records that are spelled out.
_MAX_SHOWN = 5


@dataclass
class Part:
    """What one partition got."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def add(self, offset: int | None) -> None:
        """Count one more record at this offset; None if the command did not wait for the offset."""
        self.records += 1
        if offset is not None and offset >= 0:
            self.first_offset = offset if self.first_offset is None else self.first_offset
            self.last_offset = offset


@dataclass
class Written:
    """What was written so far."""

    records: int = 0
    size: int = 0
    partitions: dict[int, Part] = field(default_factory=dict)


class Delivery:
    """Writes batches to one topic. `written` tells how far it came, also after an error."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        acks: str,
        retry_seconds: float,
        idempotent: bool,
        note: Callable[[str], None],
    ) -> None:
        self.written = Written()
        # Where the batch came from that has no answer yet; nothing where there is none.
        self.under_way = ""
        self._client = client
        self._path = f"{topic_path(topic)}/records"
        self._acks = acks
        self._retry_seconds = retry_seconds
        self._idempotent = idempotent
        self._note = note

    def send(self, batch: Sequence[Outgoing]) -> None:
        """Write a batch. Raises CommandError, which says where it stopped and what is written."""
        content = b"\n".join(record.json for record in batch)
        self.under_way = batch[0].where if len(batch) == 1 else f"{batch[0].where} to {batch[-1].where}"
        try:
            answer = self._post(content)
        except RefusedError as error:
            raise self._refused(error, batch) from None
        except UnreachableError as error:
            raise self._lost(error, batch) from None
        self.under_way = ""
        refused = []
        for record, result in zip(batch, answer["records"], strict=True):
            if result.get("error") is not None:
                refused.append((record.where, str(result["error"]["detail"])))
                continue
            self.written.records += 1
            self.written.partitions.setdefault(result["partition"], Part()).add(result["offset"])
        self.written.size += len(content)
        if refused:
            lines = [f"{where}: {detail}" for where, detail in refused[:_MAX_SHOWN]]
            if len(refused) > _MAX_SHOWN:
                lines.append(f"… and {len(refused) - _MAX_SHOWN} more")
            raise CommandError(
                f"{counted(len(refused), 'record')} of {len(batch)} in one request could not be written.",
                *lines,
            )

    def _post(self, content: bytes) -> Any:
        headers = {"content-type": NDJSON}
        if self._idempotent:
            headers["idempotency-key"] = str(uuid.uuid4())
        deadline = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE
        while True:
            try:
                return self._client.send(
                    "POST", self._path, params={"acks": self._acks}, content=content, headers=headers
                ).data
            except UnreachableError as error:
                if (error.sent and not self._idempotent) or time.monotonic() + pause > deadline:
                    raise
            except RefusedError as error:
                if not self._may_repeat(error) or time.monotonic() + pause > deadline:
                    raise
            if pause == FIRST_PAUSE:
                self._note("The gateway is away; trying again.")
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _may_repeat(self, error: RefusedError) -> bool:
        """Whether a refused batch may be sent again: nothing of it was written, or the key tells it apart."""
        if error.status in (429, 503) and "kafka_error" not in error.problem:
            return True
        if not self._idempotent:
            return False
        # A retriable 404 is not waited for: it is a misspelt topic.
        passing = bool(error.problem.get("retriable")) and error.status in (503, 504, 507)
        return passing or error.kind == "idempotency-key-in-use"

    def _refused(self, error: RefusedError, batch: Sequence[Outgoing]) -> CommandError:
        where = _place_of(error, batch)
        if where:
            error.text = f"{where[:1].upper()}{where[1:]}: {error.text}"
        if len(batch) > 1 or self.written.records:
            error.with_hint(
                f"Written before that: {counted(self.written.records, 'record')}; nothing from {batch[0].where} on."
            )
        return error

    def _lost(self, error: UnreachableError, batch: Sequence[Outgoing]) -> UnreachableError:
        before = f"Written before that: {counted(self.written.records, 'record')}."
        if error.sent:
            uncertain = f"What was under way may or may not have been written: {self.under_way}."
            error.hints = (uncertain, before)
        elif self.written.records:
            error.hints = (*error.hints, f"{before} It stopped at {batch[0].where}.")
        return error


def _place_of(error: RefusedError, batch: Sequence[Outgoing]) -> str:
    """Where the record came from that a refusal is about; nothing where it is not about one."""
    entries = error.problem.get("errors") or [{}]
    first = entries[0] if isinstance(entries[0], dict) else {}
    index = first.get("record")
    if index is None:
        parts = str(first.get("pointer", "")).split("/")
        index = (
            int(parts[2]) if parts[:2] == ["#", "records"] and len(parts) > 2 and parts[2].isdigit() else None
        )
    return batch[index].where if isinstance(index, int) and 0 <= index < len(batch) else ""
