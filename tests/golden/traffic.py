"""Recorded traffic of real Kafka brokers, and its rows as bytes. `data/README.md` describes the recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).resolve().parent / "data"


class Row(NamedTuple):
    """One request and its answer, without the size prefix. `response` is None where there was none."""

    name: str
    key: int
    version: int
    request: bytes
    response: bytes | None

    def __str__(self) -> str:
        return self.name


def golden_file(name: str) -> Path:
    """Return the path of a recording in `tests/golden/data`."""
    return DATA / name


def rows(name: str) -> list[Row]:
    """Return the rows of a golden file. Raises FileNotFoundError where the file is missing."""
    return [_row(index, row) for index, row in enumerate(json.loads(golden_file(name).read_text()))]


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
