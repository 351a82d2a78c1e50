"""`python -m pipeline`: what `sluice spark` starts."""

from __future__ import annotations

from pipeline.command.group import spark
from pipeline.command.running import leave

if __name__ == "__main__":
    try:
        spark(prog_name="sluice spark")
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 1 if end.code else 0)
