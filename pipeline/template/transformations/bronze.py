"""The topic as it is. Everything else can be computed again from here."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def bronze() -> DataFrame:
    """Key, value, headers, topic, partition, offset and timestamp of each record."""
    options = {
        "kafka.bootstrap.servers": spark.conf.get("sluice.bootstrap") or "",
        "subscribe": spark.conf.get("sluice.topic") or "",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    return spark.readStream.format("sluice").options(**options).load()
