"""Values that fit the schema as columns, and beside them those that do not, with the reason."""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

# What a value should look like. Change it: the next run takes it for what is new.
SCHEMA = {"id": "BIGINT", "total": "DOUBLE"}
CORRUPT = "_corrupt_record"


def parsed(records: DataFrame) -> DataFrame:
    """Records with `data`, the value by the schema; its corrupt text is null where it fits."""
    text = f.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    columns = ", ".join(f"{name} {kind}" for name, kind in {**SCHEMA, CORRUPT: "STRING"}.items())
    data = f.from_json(text, columns, options)
    return records.withColumn("text", text).withColumn("data", data)


def fits() -> Column:
    """Whether a value is one JSON object of the schema; Spark's reader alone would not see what follows it."""
    alone = f.json_array_length(f.concat(f.lit("["), "text", f.lit(",0]"))) == 2
    one_object = f.startswith(f.ltrim("text"), f.lit("{")) & f.coalesce(alone, f.lit(False))
    return one_object & f.col(f"data.{CORRUPT}").isNull()


@dp.table
def silver() -> DataFrame:
    """The fields, and where they come from."""
    good = parsed(spark.readStream.table("bronze")).where(fits())
    fields = [f.col(f"data.{name}") for name in SCHEMA]
    return good.select(*fields, "key", "timestamp", "topic", "partition", "offset")


@dp.table
def quarantine() -> DataFrame:
    """What could not be decoded, as it was, with the reason."""
    bad = parsed(spark.readStream.table("bronze")).where(f.col("value").isNotNull() & ~fits())
    reason = f.when(f.try_parse_json("text").isNull(), "the value is not JSON").otherwise(
        f.lit("the value does not fit the schema")
    )
    return bad.select(reason.alias("reason"), "key", "value", "timestamp", "topic", "partition", "offset")
