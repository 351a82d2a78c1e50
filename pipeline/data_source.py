"""`spark.read.format("sluice")` and its siblings: which reader or writer answers."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.decode import columns as c
from pipeline.sink.options import WriteOptions, write_options
from pipeline.sink.rows import check_schema
from pipeline.sink.writer import BatchWriter, StreamWriter
from pipeline.source.batch import BatchReader
from pipeline.source.options import OptionError, ReadOptions, columns_of, read_options
from pipeline.source.pushdown import PushdownReader
from pipeline.source.stream import StreamReader


class SluiceDataSource(DataSource):
    """Topics of a Kafka cluster. Options are those of Spark's Kafka source; see `pipeline.source.options`."""

    @classmethod
    def name(cls) -> str:
        """The short name."""
        return "sluice"

    def schema(self) -> str:
        """Key, value, topic, partition, offset, timestamp, timestampType and, if asked for, headers."""
        return c.ddl(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        options = with_schema(read_options(self.options, streaming=False), schema)
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """The reader of a streaming query."""
        return StreamReader(with_schema(read_options(self.options, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of `df.write`; a topic can be appended to, never overwritten."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode('append')")
        writer = BatchWriter(self._writing(schema))
        writer.check()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a streaming query; output mode complete appends each whole result again."""
        options = self._writing(schema)
        if options.exactly_once is not None and options.exactly_once.app is not None:
            raise OptionError(
                "txnAppId and txnVersion are for df.write; a stream has an id and numbers its batches"
            )
        writer = StreamWriter(options)
        writer.check()
        return writer

    def _writing(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        check_schema(schema, options.topic)
        return options


def with_schema(options: ReadOptions, schema: StructType) -> ReadOptions:
    """The options with the columns that the query's schema names. Raises OptionError for foreign columns."""
    for field in schema.fields:
        wanted = c.SPARK_TYPES.get(field.name)
        if wanted is None or field.dataType.simpleString() != wanted:
            raise OptionError(
                f"the source has no column {field.name} {field.dataType.simpleString()}; it has "
                f"{c.ddl(tuple(c.ARROW_TYPES))}"
            )
    return replace(options, columns=tuple(schema.fieldNames()))
