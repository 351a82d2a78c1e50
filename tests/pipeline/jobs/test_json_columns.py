"""JSON values into columns: what fits, and the reason of each that does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import json_columns

BEHIND = "the value continues after its JSON object"
NO_JSON, NO_OBJECT = "the value is not JSON", "the value is not a JSON object"
FITS = None

VALUES: dict[str, str | None] = {
    '{"id": 1}': FITS,
    "{}": FITS,
    ' \t\r\n{"id": 1}\n': FITS,
    '{"id": 1, "x": {"y": [{"z": 1}, {"z": "}] {"}]}}': FITS,
    '{"x": {}, "id": 1} ': FITS,
    '{"s": "} {"}': FITS,
    '{"id": 1}{"id": 2}': BEHIND,
    '{"id": 1} {"id": 2}': BEHIND,
    '{"id": 1}\n{"id": 2}\n': BEHIND,
    '{"id": 1},{"id": 2}': BEHIND,
    '{"id": 1}, 0] {"id": 2}': BEHIND,
    '{"id": 1}]': BEHIND,
    '{"id": 1}] [{"id": 2}': BEHIND,
    '{"id": 1}}': BEHIND,
    '{"id": 1}} {"id": {"a": 1}': BEHIND,
    '{"id": 1} and more': BEHIND,
    '{"id": 1} // }': BEHIND,
    '{"id": 1,}': NO_JSON,
    "{'id': 1}": NO_JSON,
    '{"id": 1': NO_JSON,
    '[{"id": 1}]': NO_OBJECT,
    "7": NO_OBJECT,
    "null": NO_OBJECT,
    "": NO_OBJECT,
    '{"id": "x"} {"id": 1}': "field id: x is no BIGINT",
}


def _records(spark: SparkSession, values: list[str | None]) -> Any:
    return spark.createDataFrame([(n, v) for n, v in enumerate(values)], "offset BIGINT, value STRING").selectExpr(
        "cast(value as binary) value", "'t' topic", "0 partition", "offset", "timestamp_millis(0) timestamp",
        "cast(null as binary) key",
    )  # fmt: skip


def test_each_value_fits_or_has_its_reason(spark: SparkSession) -> None:
    schema = json_columns.parse_schema("id BIGINT, s STRING")
    records = _records(spark, [*VALUES, None])
    rows = json_columns.typed(records, schema, "ignore").orderBy("_offset").collect()
    assert dict(zip([*VALUES, None], [row["_reason"] for row in rows], strict=True)) == {**VALUES, None: FITS}


@pytest.mark.parametrize("unknown_fields", ["ignore", "keep", "reject"])
def test_two_objects_are_refused_whatever_becomes_of_unknown_fields(
    spark: SparkSession, unknown_fields: str
) -> None:
    schema = json_columns.parse_schema("id BIGINT")
    records = _records(spark, ['{"id": 1} {"id": 2, "other": 3}', '{"id": 1}'])
    rows = json_columns.typed(records, schema, unknown_fields).orderBy("_offset").collect()
    assert [row["_reason"] for row in rows] == [BEHIND, FITS]


def test_a_variant_is_one_value_and_not_the_first_of_several(spark: SparkSession) -> None:
    good = ["7", ' "x" ', "[1, [2]]", '{"a": {"b": 1}}\n', "null"]
    bad = ["7 8", '"x", 1', "[1] [2]", "[1]]", '{"a": 1} {"b": 2}', "{}, 0] {", "null null"]
    rows = json_columns.variant(_records(spark, [*good, *bad])).orderBy("_offset").collect()
    assert [row["_reason"] for row in rows] == [
        *[FITS] * len(good),
        *["the value continues after its JSON"] * len(bad),
    ]


def test_a_deep_value_is_told_apart_from_two(spark: SparkSession) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": [deep]}
    schema = json_columns.parse_schema("a STRING")
    rows = json_columns.typed(_records(spark, [json.dumps(deep)]), schema, "ignore").collect()
    assert [row["_reason"] for row in rows] == [FITS]
