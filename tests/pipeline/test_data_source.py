"""Which reader or writer answers, chosen by options alone; and what may go to workers at all."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from pipeline.data_source import SluiceDataSource
from pipeline.sink.writer import BatchWriter, StreamWriter
from pipeline.source.batch import BatchReader
from pipeline.source.options import OptionError
from pipeline.source.pushdown import PushdownReader
from pipeline.source.stream import StreamReader

SERVERS = {"kafka.bootstrap.servers": "h:1"}
VALUE = StructType().add("value", BinaryType())


def _source(**options: str) -> SluiceDataSource:
    # Spark hands options over with small letters.
    return SluiceDataSource({name.lower(): value for name, value in {**SERVERS, **options}.items()})


def test_columns_are_those_that_options_ask_for() -> None:
    assert _source(subscribe="t").schema().endswith("timestamp timestamp, timestampType int")
    assert (
        _source(subscribe="t", includeHeaders="true")
        .schema()
        .endswith("headers array<struct<key:string,value:binary>>")
    )
    assert _source(subscribe="t", columns="offset,value").schema() == "offset bigint, value binary"


def test_a_reader_takes_filters_only_where_it_is_asked_to_and_all_go_to_workers() -> None:
    readers = {
        BatchReader: _source(subscribe="t").reader(VALUE),
        PushdownReader: _source(subscribe="t", pushdown="true").reader(VALUE),
        StreamReader: _source(subscribe="t").streamReader(VALUE),
    }
    for kind, reader in readers.items():
        assert type(reader) is kind
        assert pickle.loads(pickle.dumps(reader)).options == reader.options  # type: ignore[attr-defined]
    # Spark fails each query of a reader that merely has this method, unless a setting allows it.
    assert not hasattr(StreamReader, "pushFilters")
    assert "pushFilters" not in vars(BatchReader)


def test_writers_are_for_topics_and_a_topic_is_never_overwritten() -> None:
    assert isinstance(_source(topic="t").writer(VALUE, overwrite=False), BatchWriter)
    assert isinstance(_source(topic="t").streamWriter(VALUE, overwrite=True), StreamWriter)
    with pytest.raises(OptionError, match="cannot be overwritten"):
        _source(topic="t").writer(VALUE, overwrite=True)
    with pytest.raises(OptionError, match="where to"):
        _source().writer(VALUE, overwrite=False)


def test_a_schema_of_the_users_own_may_name_our_columns_alone() -> None:
    chosen = StructType().add("offset", LongType())
    reader = _source(subscribe="t").reader(chosen)
    assert isinstance(reader, BatchReader) and reader.options.columns == ("offset",)
    with pytest.raises(OptionError, match="no column value string; it has key binary"):
        _source(subscribe="t").reader(StructType().add("value", StringType()))
