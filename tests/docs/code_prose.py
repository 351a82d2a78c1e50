"""The prose of the code: comments, docstrings, strings and names, each with its line."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.broker_process import ROOT

FOLDERS = ("app", "core", "pipeline", "migrations", "bench", "openapi", "tests")
# Files without Python are checked whole: their comments, their texts and their names.
WHOLE = (".js", ".css", ".html", ".json", ".c", ".go", ".rs", ".java", ".ts", ".mjs", ".md", ".toml", ".mako")
# Recorded data: its words are those of other programs.
DATA = ("tests/golden/data/", "tests/clients/package-lock.json")


def files(folder: str) -> list[Path]:
    """Return the files of the repository below a folder that have prose, in order."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    try:
        names = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob("*")]
    return [
        ROOT / name
        for name in sorted(names)
        if name.endswith((".py", *WHOLE)) and not name.startswith(DATA) and (ROOT / name).is_file()
    ]


def prose_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) for each comment, docstring, string and name of a definition.

    The words of a name are separated by blanks, so `test_nobody_waits` is read as a sentence. Comments on lines that
    follow each other are one text, because a phrase may begin on one line and end on the next.
    """
    source = file.read_text()
    if file.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    yield from _comments(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if " " in value.strip():  # a single word is a key or a name
                yield node.lineno, value
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, " ".join(name_words(node.name))


def flat(file: Path) -> str:
    """Return a file as one line of words: broken comments and strings joined, the words of names separated.

    This is quick. A word that is not in it is not in `prose_of` or `names_of` either.
    """
    text = file.read_text()
    text = re.sub(r"\n\s*#\s*|[\"']\s*\n\s*[a-zA-Z]?[\"']|\s+", " ", text)
    return f"{text} {re.sub(r'(?<=[a-z0-9])(?=[A-Z])|_', ' ', text)}"


def names_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for each identifier of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def name_words(name: str) -> list[str]:
    """Return the words of an identifier in lower case: `OldSets`, `old_sets` and `OLD_SETS` are old, sets."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _comments(source: str) -> Iterator[tuple[int, str]]:
    first, last, words = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("# ")
        if token.start[0] == last + 1:
            words += "\n" + text
        else:
            if words:
                yield first, words
            first, words = token.start[0], text
        last = token.start[0]
    if words:
        yield first, words
