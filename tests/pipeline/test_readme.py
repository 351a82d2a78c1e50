"""The README's section on Spark, typed in as it stands."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from pipeline.sink.marks import HEADER
from pipeline.sink.options import WRITING
from pipeline.source.options import READING
from tests.broker_process import ROOT
from tests.pipeline.topics import Topics

README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## Spark\n") : README.index("## Jobs\n")]


def test_the_readmes_read_write_and_stream_work_as_typed(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    topics.create("hello")
    topics.create("users", partitions=3)
    topics.write("hello", ["Hello", "one more"])
    code = "\n".join(re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL))
    code = code.replace("127.0.0.1:9092", topics.broker.kafka).replace("checkpoints/copier", checkpoint)
    exec(code, {"spark": spark})
    written = [record for partition in range(3) for record in topics.records("users", partition)]
    assert sorted(record.value or b"" for record in written) == [b"Hello", b"one more", b'{"city":"Oslo"}']
    assert all(HEADER in dict(record.headers) for record in written)


def test_every_option_stands_in_the_readme() -> None:
    spelled = SECTION.replace("(`…Strategy`)", "startingOffsetsByTimestampStrategy").replace(
        "`ending…`", "endingOffsets endingTimestamp endingOffsetsByTimestamp"
    )
    options = (set(READING) | set(WRITING)) - {"checkpointLocation", "queryName"}
    missing = [name for name in options if not re.search(rf"\b{re.escape(name)}\b", spelled)]
    assert sorted(missing) == ["kafka.acks", "kafka.security.protocol"]
