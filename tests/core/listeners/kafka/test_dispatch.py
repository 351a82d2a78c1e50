"""core.listeners.kafka.dispatch: every message of the codec is served, or is named here as not served yet."""

from __future__ import annotations

from pathlib import Path

from core.listeners.kafka.dispatch import HANDLERS
from core.protocol import messages
from core.protocol.apis import APIS

# Messages that no handler serves yet, by the work that will serve them. This list may only shrink: a message file
# comes with its handler.
NOT_YET_SERVED: dict[str, set[str]] = {}


def test_every_api_of_the_codec_is_served_or_on_the_list() -> None:
    unserved = {api.name for key, api in APIS.items() if key not in HANDLERS}
    assert unserved == set().union(*NOT_YET_SERVED.values())


def test_every_message_file_belongs_to_an_api() -> None:
    files = {path.stem for path in Path(next(iter(messages.__path__))).glob("*.py")} - {"__init__"}
    assert files == {api.message_file for api in APIS.values()}
