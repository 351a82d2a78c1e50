"""A standalone Spark cluster as docs/spark/where-it-runs.md starts one: a master and a worker of the pip install."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pyspark

from tests.pipeline.class_archive import java_options

SPARK_HOME = Path(pyspark.__path__[0])
START_SECONDS = 120.0


class Standalone:
    """One master, one worker of one core, on ports of their own; `home` gets their logs and work directories."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Standalone:
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master", *ports)
            self.master = self._wait(log, r"Starting Spark master at (spark://\S+)")
            work = ("--work-dir", str(self._home / "work"), "--cores", "1", "--memory", "1g")
            log = self._start("worker", "org.apache.spark.deploy.worker.Worker", *ports, *work, self.master)
            self._wait(log, r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both, and the executors that the worker has started."""
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, *command: str) -> Path:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))},
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
        }
        log = self._home / f"{name}.log"
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(SPARK_HOME / "bin" / "spark-class"), *command], cwd=self._home, env=environment,
                    stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip
        return log

    def _wait(self, log: Path, said: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._processes[-1].poll() is None:
            found = re.search(said, log.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"no {said!r} in {log.name}: {log.read_text()[-3000:]}")
