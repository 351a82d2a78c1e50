"""The reference pages: which there are, writing them, and comparing them with the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from app.reference import cli, configs, errors, http_api, metrics, settings


def pages(command: click.Command) -> dict[str, Callable[[], str]]:
    """Return the pages by file name. `command` is the whole command line."""
    return {
        "settings.md": settings.page,
        "topic-settings.md": configs.page,
        "errors.md": errors.page,
        "metrics.md": metrics.page,
        "http-api.md": http_api.page,
        "cli.md": lambda: cli.page(command),
        "jobs.md": cli.jobs_page,
    }


def differing(directory: Path, command: click.Command) -> list[Path]:
    """Return the pages that are missing, or are not what the code says."""
    return [
        file for file, text in _texts(directory, command) if not file.is_file() or file.read_text() != text
    ]


def write(directory: Path, command: click.Command) -> list[Path]:
    """Write all pages; return their files. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    written = _texts(directory, command)
    for file, text in written:
        file.write_text(text)
    return [file for file, _ in written]


def _texts(directory: Path, command: click.Command) -> list[tuple[Path, str]]:
    return [(directory / name, make()) for name, make in pages(command).items()]
