"""Spark over SASL_SSL: our source and sink, and Spark's own connector; no secret is in what Spark prints or keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.broker_process import ROOT
from tests.pipeline.topics import Topics
from tests.secured import PASSWORD, SASL_SSL, SSL, USER, Secured

NUMBERS = 50


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


@pytest.fixture
def topics(secured: Secured) -> Iterator[Topics]:
    with Topics(secured.broker) as made:
        yield made


def login(secured: Secured) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": secured.bootstrap(SASL_SSL),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": str(secured.ca),
    }


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(NUMBERS).selectExpr("cast(id as string) value")


def values(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.collect())


def plan(frame: DataFrame) -> str:
    """The plan in all its forms, as `explain(True)` prints it."""
    execution = frame._jdf.queryExecution()  # type: ignore[operator]
    return str(execution.toString()) + str(execution.explainString(_mode(frame, "formatted")))


def written_in(directory: Path) -> str:
    """The text of all files below a directory."""
    return "".join(
        file.read_text(errors="replace") for file in sorted(directory.rglob("*")) if file.is_file()
    )


def _mode(frame: DataFrame, name: str) -> object:
    java = frame.sparkSession._jvm.org.apache.spark.sql.execution  # type: ignore[union-attr]
    return java.ExplainMode.fromString(name)


def test_our_source_and_sink_with_a_password(
    spark: SparkSession, secured: Secured, topics: Topics, checkpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = topics.create("spark-login"), topics.create("spark-login-copy")
    options = login(secured)
    numbers(spark).write.format("sluice").options(**options, topic=first).mode("append").save()
    read = spark.read.format("sluice").options(**options, subscribe=first).load()
    assert values(read) == list(range(NUMBERS))
    stream = spark.readStream.format("sluice").options(
        **options, subscribe=first, startingOffsets="earliest", commitGroup="spark-login"
    )
    writer = stream.load().select("value").writeStream.format("sluice").options(**options, topic=second)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert values(spark.read.format("sluice").options(**options, subscribe=second).load()) == list(
        range(NUMBERS)
    )
    printed = plan(read) + str(query._jsq.explainInternal(True)) + str(query.lastProgress)
    kept = written_in(Path(checkpoint))
    assert "sluice" in printed and first in kept
    with pytest.raises(PySparkException) as raised:
        spark.read.format("sluice").options(
            **{**options, "kafka.sasl.password": "canary-wrong"}, subscribe=first
        ).load().collect()
    assert "SASL_AUTHENTICATION_FAILED" in str(raised.value)
    told = capfd.readouterr()
    for text in (printed, kept, str(raised.value), told.out, told.err):
        assert "canary" not in text


def test_our_source_with_a_certificate(spark: SparkSession, secured: Secured, topics: Topics) -> None:
    topic = topics.create("spark-certificate")
    topics.write(topic, ["7"])
    options = {
        "kafka.bootstrap.servers": secured.bootstrap(SSL),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca),
        "ssl.certificate.location": str(secured.certificate),
        "ssl.key.location": str(secured.key),
    }
    assert values(spark.read.format("sluice").options(**options, subscribe=topic).load()) == [7]


@pytest.mark.client("java")
@pytest.mark.timeout(600)
def test_a_job_keeps_and_prints_no_secret(secured: Secured, topics: Topics, tmp_path: Path) -> None:
    first, second = topics.create("job-login"), topics.create("job-login-clean")
    topics.write(first, ["1", "1", "2"])
    events, state = tmp_path / "events", tmp_path / "state"
    events.mkdir()
    flags = {
        "topic": first, "to": second, "by": "value", "group": "job-login", "state": state,
        "bootstrap": secured.bootstrap(SASL_SSL), "security-protocol": "SASL_SSL", "sasl-username": USER,
        "sasl-mechanism": "SCRAM-SHA-256", "ssl-ca-location": secured.ca, "master": "local[2]",
    }  # fmt: skip
    spark = ("eventLog.enabled=true", f"eventLog.dir=file:{events}", "eventLog.compress=false")
    command = [sys.executable, "-m", "pipeline", "run", "dedup", "--once"]
    command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    command += [part for setting in spark for part in ("--spark", f"spark.{setting}")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SLUICE_SASL_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(message.value for message in topics.records(second)) == [b"1", b"2"]
    log, kept = written_in(events), written_in(state)
    assert "SparkListenerSQLExecutionStart" in log and USER in kept and first in kept
    for text in (log, kept, done.stdout, done.stderr):
        assert "canary" not in text


@pytest.mark.client("kafka")
def test_the_connector_of_spark(spark: SparkSession, secured: Secured, topics: Topics) -> None:
    topic = topics.create("spark-connector")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": secured.bootstrap(SASL_SSL),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.ca),
    }
    numbers(spark).write.format("kafka").options(**options, topic=topic).save()
    assert values(spark.read.format("kafka").options(**options, subscribe=topic).load()) == list(
        range(NUMBERS)
    )
