"""The table of APIs against the design and against the golden traffic."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.protocol.apis import APIS

# The newest version of each API that the broker is to speak.
WANTED = {
    0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 2, 47: 0, 17: 1,
    36: 2, 18: 4, 19: 7, 20: 6, 37: 3, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 2, 28: 5, 32: 4, 33: 2, 44: 1,
    35: 5, 60: 2, 61: 0, 75: 0,
}  # fmt: skip


def test_every_api_of_the_design_is_known_from_its_first_version_to_its_newest() -> None:
    known = {key: (APIS[key].min_version, APIS[key].max_version) for key in WANTED}
    assert known == {key: (0, newest) for key, newest in WANTED.items()}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_an_api_finds_its_messages(api) -> None:  # type: ignore[no-untyped-def]
    assert api.request_type.__name__ == f"{api.name}Request"
    assert api.response_type.__name__ == f"{api.name}Response"


def test_an_api_knows_its_versions() -> None:
    metadata = APIS[3]
    assert [metadata.has(version) for version in (-1, 0, 13, 14)] == [False, True, True, False]
    assert [metadata.is_flexible(version) for version in (8, 9)] == [False, True]
    assert not APIS[17].is_flexible(1)


def test_message_modules_are_imported_when_they_are_used() -> None:
    code = (
        "import sys; from core.protocol import apis; "
        "assert not [m for m in sys.modules if m.startswith('core.protocol.messages.')]; "
        "apis.APIS[3].request_type; assert 'core.protocol.messages.metadata' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
