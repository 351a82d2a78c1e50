"""`sluice spark`: run a job, see what it would read, see the state of jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from pipeline.command.flags import given, options
from pipeline.command.init import InitError, write_project
from pipeline.command.output import ForMachines, ForPeople, table
from pipeline.command.running import run_job, show_plan
from pipeline.jobs import state
from pipeline.jobs.registry import BOOTSTRAP, KINDS, SettingsError, read_settings
from pipeline.jobs.settings import Job

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 118}
_AS_JSON = "JSON lines for a machine, instead of words and bars."


def _refuse(message: str) -> None:
    print(f"sluice spark: {message}", file=sys.stderr)
    sys.exit(2)


def _from_file(path: Path) -> Job:
    """The job in a YAML file: a mapping with `job: export` and so on."""
    try:
        content = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict) or content.get("job") not in KINDS:
        raise SettingsError(f"{path}: `job` must be one of {', '.join(KINDS)}")
    values = {key: value for key, value in content.items() if key != "job"}
    try:
        return read_settings(str(content["job"]), values)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


class _Jobs(click.Group):
    """A command for each kind of job with its flags, and one for each YAML file that is named instead."""

    def __init__(self, work: Any, **about: Any) -> None:
        super().__init__(**about)
        self._work = work

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The kinds of jobs."""
        return list(KINDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The kind's command, or the file's."""
        if cmd_name in KINDS:
            kind = KINDS[cmd_name].settings
            flags: list[click.Parameter] = [*options(kind)]
            text = (kind.__doc__ or "").strip()
            if not text.endswith("."):
                text += "."

            def call(**values: Any) -> None:
                as_json = bool(values.pop("as_json"))
                self._start(lambda: read_settings(cmd_name, given(kind, values)), as_json)

            flags.append(click.Option(["--json", "as_json"], is_flag=True, help=_AS_JSON))
            return click.Command(cmd_name, callback=call, params=flags, help=text, context_settings=CONTEXT)
        if cmd_name.endswith((".yaml", ".yml")):

            def call_file(as_json: bool) -> None:
                self._start(lambda: _from_file(Path(cmd_name)), as_json)

            flag = click.Option(["--json", "as_json"], is_flag=True, help=_AS_JSON)
            return click.Command(cmd_name, callback=call_file, params=[flag], help="The job in this file.")
        return None

    def _start(self, read: Any, as_json: bool) -> None:
        try:
            job = read()
        except SettingsError as error:
            _refuse(str(error))
            return
        sys.exit(self._work(job, ForMachines() if as_json else ForPeople(), as_json))


@click.group(context_settings=CONTEXT)
def spark() -> None:
    """Jobs at scale, on Spark: topics into tables and back, counted, cleaned, verified."""


def _run(job: Job, report: Any, as_json: bool) -> int:
    return run_job(job, report)


def _plan(job: Job, report: Any, as_json: bool) -> int:
    return show_plan(job, as_json)


spark.add_command(
    _Jobs(
        _run,
        name="run",
        help="Run a job: its kind and flags, or a YAML file with its settings.",
        context_settings=CONTEXT,
    )
)
spark.add_command(
    _Jobs(_plan, name="plan", help="Say what a job would read, and run nothing.", context_settings=CONTEXT)
)


@spark.command()
@click.option(
    "--state", "directory", default="sluice-spark", show_default=True, help="The jobs' state directory."
)
@click.option("--json", "as_json", is_flag=True, help=_AS_JSON)
def status(directory: str, as_json: bool) -> None:
    """Show the jobs of a state directory: last run, batches, offsets."""
    rows = []
    for run in state.runs(Path(directory)):
        standing = state.standing(state.checkpoint(Path(directory), run.name))
        rows.append(
            {
                "name": run.name,
                "job": run.job,
                "state": run.state,
                "rows": run.rows,
                "batch": standing.done if standing.done >= 0 else None,
                "under_way": standing.begun if standing.begun > standing.done else None,
                "error": run.error,
                **({"offsets": standing.offsets, "settings": run.settings} if as_json else {}),
            }
        )
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    else:
        click.echo(table(rows) if rows else f"no job has run with the state directory {directory}")


@spark.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--bootstrap",
    envvar=BOOTSTRAP,
    default="127.0.0.1:9092",
    show_default=True,
    help=f"Kafka brokers, as host:port; or {BOOTSTRAP}.",
)
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--output", help="The topic for clean records [the topic's name and -clean].")
def init(directory: Path, bootstrap: str, topic: str, output: str | None) -> None:
    """Write a declarative pipeline: bronze, silver, quarantine, a view, a topic; for `spark-pipelines run`."""
    output = output or f"{topic}-clean"
    try:
        for path in write_project(directory, bootstrap=bootstrap, topic=topic, output=output):
            click.echo(path)
    except (InitError, OSError) as error:
        _refuse(str(error))
    click.echo(
        f"Next: sluice topics create {output}; cd {directory} && SPARK_CONF_DIR=conf spark-pipelines run"
    )
