"""What Spark finds by itself after `pip install`: it imports every top-level module called `pyspark_…` and takes its
`DefaultSource`. Nothing else may stand here, since Spark loads it at the first look-up of any data source."""

from pipeline.data_source import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
