"""How a command fails: one or two lines that say what was wrong and what would be right, and an exit code.

0  done
1  refused by the server, or nothing to do it with
2  wrong usage (click's own code)
3  the gateway cannot be reached, or what answers is no Sluice
130  stopped by Ctrl-C before it was done
"""

from __future__ import annotations

from typing import IO, Any

import click

from app.commands.text import printable

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130
# Entries of a problem document's `errors` that are shown.
_MAX_SHOWN = 5

# What to do about a refusal, by the last part of the problem's type. Only where the detail does not say it.
_HINTS = {
    "unauthenticated": "Log in with --user NAME or --token-file FILE, or put a token into SLUICE_TOKEN.",
    "foreign-origin": "Start the gateway with --allowed-origin.",
    "unknown-host": "Call it by its IP address, or start it with --allowed-host NAME.",
    "topic-already-exists": "--if-not-exists takes it as it is.",
    "topic-differs": "`sluice topics alter` changes it.",
    "non-empty-group": "Stop its consumers first; `sluice groups describe` shows them.",
    "group-id-not-found": "`sluice groups list` shows all groups.",
    "not-ready": "It is starting or stopping; try again in a moment.",
    "internal-error": "The gateway's log says more.",
    "kafka-storage-error": "The gateway's disk failed or is full; its log says more.",
}


class CommandError(click.ClickException):
    """A command that failed: a message and hints."""

    exit_code = REFUSED

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__(message)
        self.text = message
        self.hints = hints

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it to stderr."""
        click.echo(f"sluice: {printable(self.text)}", file=file, err=True)
        for hint in self.hints:
            click.echo(f"  {printable(hint)}", file=file, err=True)


class RefusedError(CommandError):
    """The gateway answered with a problem document."""

    def __init__(self, problem: dict[str, Any], status: int, *hints: str) -> None:
        self.problem = problem
        self.status = status
        self.kind = str(problem.get("type", "")).rpartition("/")[2]
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        known = [_HINTS[self.kind]] if self.kind in _HINTS else []
        super().__init__(detail, *_errors_of(problem, detail), *known, *hints)

    def with_hint(self, hint: str) -> RefusedError:
        """The same refusal with one more line, before it is shown."""
        self.hints = (*self.hints, hint)
        return self


class UnreachableError(CommandError):
    """No answer came. `sent` says whether the request may have arrived."""

    exit_code = UNREACHABLE

    def __init__(self, message: str, *hints: str, sent: bool) -> None:
        super().__init__(message, *hints)
        self.sent = sent


class InputError(CommandError):
    """What was to be sent cannot be: a line that is not as the options say."""

    exit_code = USAGE


def _errors_of(problem: dict[str, Any], detail: str) -> list[str]:
    """The entries of `errors` that say more than the detail does."""
    lines = []
    entries = problem.get("errors")
    for entry in entries if isinstance(entries, list) else []:
        text = str(entry.get("detail", "")) if isinstance(entry, dict) else str(entry)
        if text and text not in detail and text not in lines:
            lines.append(text)
    if len(lines) > _MAX_SHOWN:
        lines[_MAX_SHOWN:] = [f"… and {len(lines) - _MAX_SHOWN} more"]
    return lines
