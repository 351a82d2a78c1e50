"""`sluice spark …`: hands over to the pipeline, which is a program of its own.

This process becomes `python -m pipeline`: the gateway's code and Spark's never meet in one interpreter, signals and
exit codes are the pipeline's own, and without the extra there is one line instead of a traceback.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

PROGRAM = "pipeline"
_NEEDS = ("pyspark", "pyarrow", "yaml")
_HOW = (
    "Spark jobs need more than the gateway: pip install '.[spark,lake]' in Sluice's directory, "
    "and a Java runtime, 17 or newer."
)


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    },
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def spark(arguments: tuple[str, ...]) -> None:
    """Jobs at scale on Spark: topics into tables and back, aggregates, checks."""
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        print(f"sluice: {', '.join(missing)} is not installed. {_HOW}", file=sys.stderr)
        sys.exit(2)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", PROGRAM, *arguments])
