"""A table keeps its first columns; an error names those that differ."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.lake.errors import LakeError


def check_columns(table: object, had: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """A `LakeError` unless a table's columns, name → type, are those that a job would write."""
    words = [
        f"the column {name}: {had[name]} in the table, {kind} in this job"
        for name, kind in wanted.items()
        if had.get(name, kind) != kind
    ]
    for who, here, there in (("this job", wanted, had), ("the table", had, wanted)):
        missing = [name for name in there if name not in here]
        if missing:
            words.append(f"{who} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    if words:
        raise LakeError(
            f"{table} has other columns: {'; '.join(words)}. Write other columns into another table."
        )
