"""`sluice spark init`: a project for `spark-pipelines`, which runs as it is."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

TEMPLATE = Path(__file__).resolve().parent.parent / "template"


class InitError(Exception):
    """A project that cannot be written, and why."""


def write_project(directory: Path, *, bootstrap: str, topic: str, output: str) -> list[Path]:
    """Write the project; answers its files. Raises InitError when something is there already."""
    for name in (topic, output):
        if not re.fullmatch(r"[\w.-]{1,249}", name):
            raise InitError(f"{name!r} is no name of a topic")
    if topic == output:
        raise InitError("the topic that is written must not be the one that is read")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InitError(f"{directory} is there already and not empty")
    values = {
        "name": re.sub(r"\W", "_", directory.absolute().name), "directory": str(directory.absolute()),
        "bootstrap": bootstrap, "topic": topic, "output": output,
    }  # fmt: skip
    written = []
    for source in sorted(
        path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ):
        target = directory / source.relative_to(TEMPLATE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        # Only the project's own settings are filled in; code is copied as it is.
        plain = source.suffix == ".py" or source.name == ".gitignore"
        target.write_text(text if plain else Template(text).substitute(values))
        written.append(target)
    return written
