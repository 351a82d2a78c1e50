"""What a running job shows Prometheus."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from pipeline.jobs.report import Outcome, Progress, Report


class Metered:
    """A report that counts for Prometheus and passes everything on."""

    def __init__(self, report: Report, job: str, name: str, port: int) -> None:
        self._report = report
        self._registry = CollectorRegistry()
        labels = {"job": job, "name": name}

        def counter(metric: str, text: str) -> Counter:
            made = Counter(f"sluice_spark_{metric}", text, list(labels), registry=self._registry)
            return made.labels(**labels)

        def gauge(metric: str, text: str) -> Gauge:
            made = Gauge(f"sluice_spark_{metric}", text, list(labels), registry=self._registry)
            return made.labels(**labels)

        self._rows = counter("rows", "Records that were read.")
        self._batches = counter("batches", "Micro-batches that ended.")
        self._rejected = gauge(
            "rejected_rows", "Records left out since the start, because they could not be decoded."
        )
        self._files = gauge("written_files", "Files committed since the start.")
        self._bytes = gauge("written_bytes", "Bytes of these files.")
        self._seconds = gauge("batch_seconds", "How long the last micro-batch took, or the step under way.")
        self._rate = gauge("rows_per_second", "Speed of the last micro-batch, or of the step under way.")
        self._lag = gauge(
            "lag", "Records of the topics beyond the last micro-batch, or what the step has left."
        )
        self._last = gauge("last_batch_timestamp_seconds", "When the job last said how far it is.")
        self._tasks = gauge("step_tasks", "Tasks of the step under way, of a job without micro-batches.")
        self._tasks_done = gauge("step_tasks_done", "How many of them are done.")
        self._failed = gauge("failed", "1 once the job has failed.")
        self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=self._registry)
        report.note(f"metrics on http://127.0.0.1:{self._server.server_port}/metrics")

    def note(self, text: str) -> None:
        """Passed on."""
        self._report.note(text)

    def progress(self, progress: Progress) -> None:
        """Counted and passed on."""
        self._rows.inc(progress.rows)
        if progress.step:
            self._tasks.set(progress.tasks)
            self._tasks_done.set(progress.tasks_done)
        else:
            self._batches.inc()
        self._rejected.set(progress.rejected)
        self._files.set(progress.files)
        self._bytes.set(progress.bytes)
        self._seconds.set(progress.seconds)
        self._rate.set(progress.rows_per_second)
        self._last.set(time.time())
        if progress.lag is not None:
            self._lag.set(progress.lag)
        self._report.progress(progress)

    def done(self, outcome: Outcome) -> None:
        """Passed on."""
        self._failed.set(1 if outcome.problems else 0)
        self._report.done(outcome)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
