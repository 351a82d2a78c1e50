"""Where the golden traffic lies, and its rows as bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest


class Row(NamedTuple):
    """One request and its answer, without the size prefix. `response` is None where there was none."""

    name: str
    key: int
    version: int
    request: bytes
    response: bytes | None

    def __str__(self) -> str:
        return self.name


def golden_file(name: str) -> Path | None:
    """The file in `shared/golden` beside this repository, or beside any directory above it."""
    for directory in Path(__file__).resolve().parents:
        found = directory / "shared" / "golden" / name
        if found.is_file():
            return found
    return None


def rows(name: str) -> list[Row]:
    """The rows of a golden file; skips the test module where the file is absent."""
    file = golden_file(name)
    if file is None:
        pytest.skip(f"shared/golden/{name} is not beside this repository", allow_module_level=True)
    return [_row(index, row) for index, row in enumerate(json.loads(file.read_text()))]


def _row(index: int, row: dict[str, object]) -> Row:
    what = row.get("case") or row.get("client_id") or ""
    response = row.get("response")
    request = bytes.fromhex(str(row.get("request", "")))
    if row.get("request_cut"):  # the rest is one letter, again and again
        request += b"x" * (int.from_bytes(request[:4], "big") + 4 - len(request))
    return Row(
        f"{index}-{row.get('api_key')}-v{row.get('version')}-{what}",
        int(str(row.get("api_key", -1))),
        int(str(row.get("version", -1))),
        request[4:],
        bytes.fromhex(str(response))[4:] if response else None,
    )
