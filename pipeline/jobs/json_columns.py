"""JSON values → typed columns, and for each record that does not fit the reason, in Spark's own expressions.

Spark's JSON reader is lenient: it accepts an array as an object and bytes that are not UTF-8, stops after the first
value, and sets members that do not fit to null. Each of these is found here and named, so that nothing is lost
silently.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

REASON = "_reason"
_CORRUPT = "_corrupt_record"
# What a typed table says of a record beside its fields; the names begin with `_` so that fields rarely meet them.
META = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}
VALUE = "_value"
_SHOWN = 60
# What JSON takes for white space; Spark's trim takes a blank alone.
_SPACE = " \t\r\n"


def parse_schema(ddl: str) -> StructType:
    """The schema of a DDL text. Raises ValueError with the first line of what Spark says."""
    try:
        schema = cast("StructType", StructType.fromDDL(ddl))
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "it cannot be parsed")
        raise ValueError(f"schema {ddl!r}: {first.strip()}") from None
    taken = [name for name in schema.names if name in (*META, VALUE, REASON, _CORRUPT)]
    if taken:
        raise ValueError(f"schema: {', '.join(taken)} is a name of ours")
    return schema


def _is_object(text: Column) -> Column:
    # Most begin so: only the others are trimmed, which costs a copy.
    brace = f.lit("{")
    return f.startswith(text, brace) | f.startswith(f.ltrim(text, f.lit(_SPACE)), brace)


def _more_after_value(text: Column) -> Column:
    """Whether anything follows the first JSON value of a text that begins with one.

    Such a text is put into brackets, and must be one element there; before one more element, it must be the first
    of two, which tells a `]` that follows the value. Both only count, and build nothing.
    """
    counts = [f.json_array_length(f.concat(f.lit("["), text, f.lit(end))) for end in ("]", ",0]")]
    alone = counts[0].eqNullSafe(1) & (~f.contains(text, f.lit("]")) | counts[1].eqNullSafe(2))
    return ~alone


def _more_after_object(text: Column) -> Column:
    """The same of an object. One whose first `}` is its last character needs no second look.

    Counted in bytes: characters cost Spark three times as much.
    """
    end = f.rtrim(text, f.lit(_SPACE))
    whole = f.when(f.endswith(text, f.lit("}")), text).otherwise(end)
    before = f.octet_length(f.substring_index(text, "}", 1))
    return (before + 1 != f.octet_length(whole)) & _more_after_value(text)


def _field_reasons(text: Column, parsed: Column, schema: StructType) -> Column:
    """`field total: 'twelve' is no DOUBLE` for each top-level field whose text is there and whose value is not."""
    reasons = []
    for field in schema.fields:
        raw = f.try_element_at(f.from_json(text, "map<string,string>"), f.lit(field.name))
        reasons.append(
            f.when(
                parsed[field.name].isNull() & raw.isNotNull(),
                f.concat(
                    f.lit(f"field {field.name}: "), f.substring(raw, 1, _SHOWN),
                    f.lit(f" is no {field.dataType.simpleString().upper()}"),
                ),
            )
        )  # fmt: skip
    return f.concat_ws("; ", *reasons)


def typed(records: DataFrame, schema: StructType, unknown_fields: str) -> DataFrame:
    """The fields of `schema`, the `META` columns, and `_reason`, which is null where a record fits.

    A null value (a tombstone) fits and has null fields. `keep` adds `_value`: the text of records with members that
    the schema lacks.
    """
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    text = f.col("value").cast("string")
    options = {
        "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowNonNumericNumbers": "false",
        "allowSingleQuotes": "false",
    }  # fmt: skip
    parsed = records.withColumn("_text", text).withColumn(
        "_parsed", f.from_json(f.col("_text"), with_corrupt, options)
    )
    known = f.array(*[f.lit(name) for name in schema.names])
    strangers = f.array_except(f.json_object_keys("_text"), known)
    why = (
        f.when(f.col("value").isNull(), f.lit(None).cast("string"))
        .when(~f.is_valid_utf8(f.col("value").cast("string")), f.lit("the value is not UTF-8"))
        .when(~_is_object(f.col("_text")), f.lit("the value is not a JSON object"))
        .when(
            f.col("_parsed").isNull() | f.col(f"_parsed.{_CORRUPT}").isNotNull(),
            f.when(f.try_parse_json("_text").isNull(), f.lit("the value is not JSON")).otherwise(
                f.coalesce(
                    f.nullif(_field_reasons(f.col("_text"), f.col("_parsed"), schema), f.lit("")),
                    f.lit("the value does not fit the schema"),
                )
            ),
        )
    )
    # Spark's reader stops after the object and does not report what follows.
    why = why.when(_more_after_object(f.col("_text")), f.lit("the value continues after its JSON object"))
    if unknown_fields == "reject":
        why = why.when(
            f.size(strangers) > 0,
            f.concat(f.lit("the schema lacks the field "), f.array_join(strangers, ", ")),
        )
    columns = [f.col(f"_parsed.{name}").alias(name) for name in schema.names]
    columns += [f.col(source).alias(name) for name, source in META.items()]
    if unknown_fields == "keep":
        columns.append(f.when(f.size(strangers) > 0, f.col("_text")).alias(VALUE))
    return parsed.select(*columns, why.alias(REASON))


def variant(records: DataFrame) -> DataFrame:
    """One `value` column of type VARIANT, the `META` columns, and `_reason` as in `typed`."""
    text = f.col("value").cast("string")
    parsed = records.withColumn("_text", text).withColumn("_parsed", f.try_parse_json("_text"))
    why = (
        f.when(f.col("value").isNull(), f.lit(None).cast("string"))
        .when(~f.is_valid_utf8(f.col("_text")), f.lit("the value is not UTF-8"))
        .when(f.col("_parsed").isNull(), f.lit("the value is not JSON"))
        .when(_more_after_value(f.col("_text")), f.lit("the value continues after its JSON"))
    )
    columns = [f.col(source).alias(name) for name, source in META.items()]
    return parsed.select(f.col("_parsed").alias("value"), *columns, why.alias(REASON))
