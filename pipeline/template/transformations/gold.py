"""What others look at: totals per hour as a materialized view, and clean records as a topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.materialized_view
def per_hour() -> DataFrame:
    """Records and their total for each hour."""
    hour = f.date_trunc("hour", "timestamp").alias("hour")
    return (
        spark.read.table("silver")
        .groupBy(hour)
        .agg(f.count("*").alias("records"), f.sum("total").alias("total"))
    )


dp.create_sink(
    "clean",
    "sluice",
    {
        "kafka.bootstrap.servers": spark.conf.get("sluice.bootstrap") or "",
        "topic": spark.conf.get("sluice.output") or "",
    },
)


@dp.append_flow(target="clean")
def to_topic() -> DataFrame:
    """Each clean record as JSON, with its key."""
    rows = spark.readStream.table("silver")
    return rows.select("key", f.to_json(f.struct("id", "total")).cast("binary").alias("value"), "timestamp")
