"""A table keeps its columns: what differs is told by name."""

from __future__ import annotations

import pytest

from pipeline.lake.columns import check_columns
from pipeline.lake.errors import LakeError


def test_all_that_differs_is_told_in_one_line() -> None:
    check_columns("lake", {"a": "long", "b": "string"}, {"b": "string", "a": "long"})
    with pytest.raises(LakeError) as refused:
        check_columns("lake", {"a": "long", "b": "string"}, {"a": "int", "c": "date", "d": "date"})
    assert str(refused.value) == (
        "lake has other columns: the column a: long in the table, int in this job; this job lacks the column b; "
        "the table lacks the columns c, d. Write other columns into another table."
    )
