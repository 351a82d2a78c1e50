"""Kafka 0.7's log of a list of payloads, written down directly; and a view asked as the listener asks it."""

from __future__ import annotations

from collections.abc import Iterable

from core.kafka07.messages import encode_message
from core.kafka07.view import AddressView
from core.kafka07.views import Kafka07Views
from core.log.log import Log
from core.log.shared import LogShared
from tests.core.log.shelf import Shelf


def old_log(magic: int, payloads: Iterable[bytes | None]) -> bytes:
    """What 0.7 would have in its log."""
    return b"".join(encode_message(magic, payload or b"") for payload in payloads)


class Kafka07Shelf(Shelf):
    """A shelf whose logs have views, as a server's logs have."""

    views: Kafka07Views

    def share(self) -> LogShared:
        """What the logs of a new process share, with the views subscribed."""
        shared = super().share()
        config = self.settings
        self.views = Kafka07Views(
            shared.pool, max_bytes=config.max_decompressed_bytes, slice_bytes=config.legacy_slice_bytes
        )
        shared.subscribe(self.views)
        return shared


def view_of(shelf: Kafka07Shelf, log: Log, magic: int = 1) -> AddressView:
    """The view that the broker keeps of a log."""
    return shelf.views.of(log, magic)


def measure(view: AddressView, *, until: int | None = None, limit: int = 1 << 20) -> int:
    """Move the frontier on, to an address or to the end; how many steps that took."""
    steps = 0
    while (until is None or view.frontier.address < until) and (task := view.begin_measuring(limit)):
        task.run()
        view.finish_measuring(task)
        steps += 1
    return steps


def read_at(view: AddressView, address: int, size: int = 1 << 20, limit: int | None = None) -> bytes:
    """One fetch: the chunk at an address, which must not be out of range."""
    while True:
        measure(view, until=address)
        assert address <= view.frontier.address, "beyond the end"
        if address == view.frontier.address and view.complete():
            return b""
        task = view.begin_reading(address, min(size, limit or size), size)
        if task is None:
            continue
        task.run()
        view.finish_reading(task)
        if task.chunk:
            return task.chunk


def read_from(view: AddressView, address: int, size: int = 1 << 20) -> bytes:
    """Everything from an address to the end, by as many fetches as it takes."""
    found = b""
    while chunk := read_at(view, address + len(found), size):
        found += chunk
    return found


def read_as_a_client(view: AddressView, address: int, size: int) -> bytes:
    """Everything from an address to the end, as clients read: they continue after the last whole message."""
    found = b""
    while chunk := read_at(view, address + len(found), size):
        position = 0
        while position + 4 <= len(chunk):
            length = int.from_bytes(chunk[position : position + 4], "big")
            assert length >= 5, "adding up lengths has led astray"
            if position + 4 + length > len(chunk):
                break
            position += 4 + length
        assert position, "a message is larger than a chunk"
        found += chunk[:position]
    return found


def start_of(view: AddressView) -> int:
    """The address of the first record."""
    if view.start_address is None:
        while (task := view.begin_locating()) is None:
            assert measure(view, until=view.frontier.address + 1)
        task.run()
        view.finish_locating(task)
    assert view.start_address is not None
    return view.start_address
