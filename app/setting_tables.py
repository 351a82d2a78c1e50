"""Settings that are tables: `name=value; …` on one line, or the tables of the configuration file, as JSON."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable
from typing import Any

from core.errors import StartupError


def named_tables(setting: str, text: str, name: str) -> dict[str, Any]:
    """Return the tables of a setting in JSON by their names; one alone gets this name. Raises StartupError."""
    try:
        tables: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise StartupError(f"{setting} is not JSON: {error}.") from None
    return tables if any(isinstance(table, dict) for table in tables.values()) else {name: tables}


def table_of_pairs(setting: str, text: str, example: str) -> dict[str, str]:
    """Return the table of `name=value; …`, without blanks around them. Raises StartupError."""
    table: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = (one.strip() for one in part.partition("="))
        if not separator or name in table:
            raise StartupError(f"{setting} must be like {example}, not {part!r}.")
        table[name] = value
    return table


def refuse_unknown(where: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise StartupError for the first name that is not known, with the nearest one that is."""
    for name in names:
        if name not in known:
            raise StartupError(f"{where} has no setting {name!r}.{did_you_mean(name, known)}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return the sentence that names the nearest known name, after a blank; nothing if none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def text_member(where: str, member: str, value: Any) -> str:
    """Return a member of a table without blanks around it. Raises StartupError unless it is a string."""
    if not isinstance(value, str):
        raise StartupError(f"{where}: {member} must be a string, not {value!r}.")
    return value.strip()
