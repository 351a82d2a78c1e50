"""`python -m tests.torture NAME [options]` runs one of the long forms; without a name it lists them.

Each is a file of this directory with a function `main`. README.md says what each proves and how long it takes.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(file.stem for file in HERE.glob("[!_]*.py"))
# What shells give for a command that SIGINT ended.
INTERRUPTED = 130


def overview() -> str:
    """Every name with the first line of its docstring, which needs no import."""
    lines = ["usage: python -m tests.torture NAME [options]; NAME --help shows the options", ""]
    for name in NAMES:
        text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text())) or ""
        lines.append(f"{name:13} {text.splitlines()[0]}")
    return "\n".join(lines)


def main() -> int:
    """Run what the command line names; return its exit code, 0 if every promise was kept."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(overview())
        return 0 if sys.argv[1:] in ([], ["--help"], ["-h"]) else 2
    name = sys.argv.pop(1)
    sys.argv[0] = f"python -m tests.torture {name}"
    try:
        # A failed promise raises AssertionError: the exit code is 1 then as well.
        return importlib.import_module(f"tests.torture.{name}").main() or 0
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
