"""The topic as it is. Everything else can be computed again from here."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

# Else Spark forgets the tables when the process ends, and finds their files in its way the next time.
if spark.conf.get("spark.sql.catalogImplementation") != "hive":
    raise RuntimeError(
        "run it as SPARK_CONF_DIR=conf spark-pipelines run: the settings in conf/ keep the tables"
    )


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
