"""docs/design: each link to a Python file names what is there, and the layers are those that `lint-imports` checks.

A link to a Python file whose text is a name between backticks names what the file defines (`function`, `Class`,
`Class.member`, `CONSTANT`) or the file itself. A link with other text only has to lead to a file.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.broker_process import ROOT
from tests.docs.test_pages import prose

PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
_TO_PYTHON = re.compile(r"\[([^\]]*)\]\(([^)\s]+\.py)\)")


@cache
def names(path: Path) -> frozenset[str]:
    """What a file defines at its top and in its classes, there also the attributes that methods set."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        found.update(_defined(node))
        if isinstance(node, ast.ClassDef):
            members = [name for inner in node.body for name in _defined(inner)]
            stored = [
                i.attr
                for i in ast.walk(node)
                if isinstance(i, ast.Attribute) and isinstance(i.ctx, ast.Store)
            ]
            found.update(f"{node.name}.{name}" for name in (*members, *stored))
    return frozenset(found)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_names_what_is_in_it(page: Path) -> None:
    wrong = []
    for text, target in _TO_PYTHON.findall(prose(page)):
        path = (page.parent / target).resolve()
        name = re.fullmatch(r"`([^`]+)`", text)
        if not path.is_file():
            wrong.append(f"{text} in {target}")
            continue
        file = str(path.relative_to(ROOT))
        if (
            name
            and not f"/{file}".endswith(f"/{name[1]}")
            and path.stem != name[1]
            and name[1] not in names(path)
        ):
            wrong.append(f"{name[1]} in {target}")
    assert wrong == []


def test_the_layers_are_those_of_the_import_rules() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    page = (ROOT / "docs" / "design" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", page, re.MULTILINE)
    shown: dict[int, set[str]] = {}
    for number, cell in rows:
        shown.setdefault(int(number), set()).update(re.findall(r"`(?:core/)?([a-z0-9_]+)(?:/|\.py)`", cell))
    assert [shown[number] for number in sorted(shown)] == [set(layer.split(" | ")) for layer in layers]
