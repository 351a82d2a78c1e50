"""A cluster of two real executors, one of which is killed in mid-query: no row is lost or duplicated."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.broker_process import ROOT
from tests.pipeline.class_archive import java_options
from tests.pipeline.jobs.running import naive, once
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.slow

PARTITIONS, RECORDS, BATCH = 2, 4_000, 1_000


def _executors(process: int) -> list[psutil.Process]:
    """The JVMs of executors below a process."""
    found = []
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # gone in the meantime
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.timeout(500)
def test_an_executor_that_is_killed_costs_no_row(topics: Topics, tmp_path: Path) -> None:
    topics.create("cluster", PARTITIONS)
    topics.fill("cluster", RECORDS, partitions=PARTITIONS)
    table, state = tmp_path / "table", tmp_path / "state"
    options = {
        "spark.driver.defaultJavaOptions": java_options(),
        "spark.executor.defaultJavaOptions": java_options(),
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executor.memory": "1g",
    }
    command = [
        sys.executable, "-m", "pipeline", "run", "export", "--json", "--once", "--name", "c", "--topic", "cluster",
        "--to", str(table), "--state", str(state), "--bootstrap", topics.broker.kafka,
        "--max-offsets-per-trigger", str(BATCH), "--master", "local-cluster[2,1,1024]",
    ]  # fmt: skip
    for key, value in options.items():
        command += ["--spark", f"{key}={value}"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    killed = 0
    try:
        deadline = time.monotonic() + 300
        while job.poll() is None and time.monotonic() < deadline:
            if not killed and list(table.glob("_sluice/*/staging/*/*.inprogress")):
                victims = _executors(job.pid)
                assert victims, log.read_text()
                killed = victims[0].pid
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.005)
        assert job.poll() == 0, log.read_text()[-5000:]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert killed, "no executor was killed: the test shows nothing"
    assert naive(table) == once("cluster", dict.fromkeys(range(PARTITIONS), RECORDS))
