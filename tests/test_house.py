"""The shape of the tree: sizes, docstrings, names, imports, and what each file may contain.

These are the rules that no linter knows. A rule with exceptions has a named list of them. Such a list may only
shrink: an exception that no longer holds fails the test, too. Circles and layers are contracts in pyproject.toml;
here is only the test that their exceptions are still needed.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.protocol.apis import APIS

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ("app", "core", "migrations", "bench", "pipeline")
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
# A package or file with such a name has no subject, so it collects everything.
NO_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
TOP = {
    ".ci", ".dockerignore", ".gitignore", "Dockerfile", "README.md", "app", "bench", "core", "docs", "migrations",
    "openapi", "pipeline", "pyproject.toml", "pyspark_sluice.py", "pytest_sluice.py", "tests",
}  # fmt: skip

# Classes that exist only to be inherited from; the list may only shrink.
ABSTRACT_BASES = {"core/log/index.py:SparseIndex"}
# Bases that describe data or a contract: a class with such an ancestor may be inherited from without being built.
DECLARATIONS = {
    "ABC", "BaseModel", "BaseException", "Enum", "Exception", "Flag", "IntEnum", "NamedTuple", "Protocol", "StrEnum",
    "Struct", "TypedDict",
}  # fmt: skip
# Files that nothing imports, because a user or a tool starts or copies them.
ENTRY_POINTS = {
    "app/__main__.py",
    "pipeline/__main__.py",
    "pipeline/template/transformations/bronze.py",
    "pipeline/template/transformations/gold.py",
    "pipeline/template/transformations/silver.py",
}


def _tracked() -> list[Path]:
    """The files of the repository; without git, all but the output of tools."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        left = re.compile(
            r"^\.(?!ci/|gitignore|dockerignore)|__pycache__|\.egg-info/|^build/|^bench/results/"
        )
        names = [file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*")]
        names = [name for name in names if not left.search(name)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


FILES = _tracked()
PYTHON = [file for file in FILES if file.suffix == ".py"]
SOURCES = [file for file in PYTHON if file.relative_to(ROOT).parts[0] in PROGRAM]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Every Python file, parsed once."""
    return {file: ast.parse(file.read_text()) for file in PYTHON}


def test_a_file_has_at_most_800_lines() -> None:
    lines = {_name(file): len(file.read_text().splitlines()) for file in PYTHON}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_a_function_has_fewer_than_60_lines(trees: dict[Path, ast.Module]) -> None:
    lengths = {
        f"{_name(file)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file, tree in trees.items()
        for node in _functions(tree)
    }
    assert {name: length for name, length in lengths.items() if length >= MAX_FUNCTION_LINES} == {}


def test_every_module_says_what_it_is_for(trees: dict[Path, ast.Module]) -> None:
    assert [_name(file) for file, tree in trees.items() if not ast.get_docstring(tree)] == []


def _public(tree: ast.Module | ast.ClassDef, path: str) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        yield f"{path}.{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from _public(node, f"{path}.{node.name}")


def _overrides(node: ast.AST) -> bool:
    names = [getattr(one, "id", getattr(one, "attr", "")) for one in getattr(node, "decorator_list", ())]
    return "override" in names or "setter" in names or "overload" in names


def test_every_public_name_has_a_docstring(trees: dict[Path, ast.Module]) -> None:
    silent = [
        name
        for file in SOURCES
        for name, node in _public(trees[file], _name(file))
        if not ast.get_docstring(node) and not _overrides(node)  # type: ignore[arg-type]
    ]
    assert silent == []


def test_an_init_file_holds_its_docstring_alone(trees: dict[Path, ast.Module]) -> None:
    inits = {file: tree for file, tree in trees.items() if file.name == "__init__.py"}
    assert [_name(file) for file, tree in inits.items() if len(tree.body) != 1] == []


def test_no_package_and_no_file_has_a_name_without_meaning() -> None:
    parts = {_name(file): {Path(part).stem for part in file.relative_to(ROOT).parts} for file in PYTHON}
    assert [name for name, stems in parts.items() if stems & NO_NAMES] == []


def test_the_top_level_has_only_the_names_of_the_list() -> None:
    assert {file.relative_to(ROOT).parts[0] for file in FILES} - TOP == set()


def test_no_version_is_tested_outside_the_protocol(trees: dict[Path, ast.Module]) -> None:
    """`if version >= 4` belongs to the codec; other code reads messages in which every field has a value."""
    found = [
        f"{_name(file)}:{node.lineno}"
        for file, tree in trees.items()
        if file in SOURCES and not _name(file).startswith(("core/protocol/", "bench/", "migrations/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and _compares_version_with_number(node)
    ]
    assert found == []


def _compares_version_with_number(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    names = [side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "") for side in sides]
    numbers = [isinstance(side, ast.Constant) and type(side.value) is int for side in sides]
    return any(re.fullmatch(r"(api_)?version", str(name)) for name in names) and any(numbers)


def test_core_takes_time_and_randomness_from_its_clock_alone(trees: dict[Path, ast.Module]) -> None:
    forbidden = {"time", "random", "secrets", "datetime"}
    found = []
    for file, tree in trees.items():
        if not _name(file).startswith("core/") or _name(file) == "core/clock.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "uuid.uuid4",
                "uuid4",
                "os.urandom",
            ):
                names = {"random"}
            else:
                continue
            if names & forbidden:
                found.append(f"{_name(file)}:{node.lineno}")
    assert found == []


def test_no_socket_and_no_sleep_where_bytes_and_states_are_decided(trees: dict[Path, ast.Module]) -> None:
    packages = ("core/protocol/", "core/records/", "core/log/", "core/groups/group.py")
    forbidden = {"socket", "asyncio", "selectors", "uvloop", "time"}
    found = [
        f"{_name(file)}:{node.lineno}"
        for file, tree in trees.items()
        if _name(file).startswith(packages)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in forbidden
    ]
    assert found == []


def test_a_base_class_is_also_built_on_its_own(trees: dict[Path, ast.Module]) -> None:
    """Methods are shared by parts, not by ancestors: then "go to definition" works for every call."""
    bases: dict[str, set[str]] = defaultdict(set)
    places: dict[str, str] = {}
    used: set[str] = set()
    for file, tree in trees.items():
        if not _name(file).startswith(("app/", "core/", "pipeline/")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name] = f"{_name(file)}:{node.name}"
                bases[node.name] |= {_last_name(base) for base in node.bases}
            elif isinstance(node, ast.Call):
                # Called, or handed to a function that calls it.
                used |= {_last_name(one) for one in (node.func, *node.args)}
    inherited = set().union(*bases.values()) & set(places)
    abstract = {places[name] for name in inherited - used if not _ancestors(name, bases) & DECLARATIONS}
    assert abstract == ABSTRACT_BASES


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _ancestors(name: str, bases: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        new = bases.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def test_every_file_is_imported_by_another(trees: dict[Path, ast.Module]) -> None:
    """An import in the program counts, and the dotted name as a string, for modules that are loaded by name."""
    modules = {file: _name(file)[:-3].replace("/", ".") for file in SOURCES if file.name != "__init__.py"}
    imported = {f"core.protocol.messages.{api.message_file}" for api in APIS.values()}
    top = [file for file in PYTHON if file.parent == ROOT]
    for file in [*modules, *top]:
        if not _name(file).startswith("bench/"):
            imported |= _imports(trees[file])
    unused = {
        _name(file)
        for file, module in modules.items()
        if _name(file).startswith(("app/", "core/", "pipeline/")) and module not in imported
    }
    assert unused == ENTRY_POINTS


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_no_registry_and_no_machine_is_named() -> None:
    forbidden = re.compile(
        r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian\.org|/wor[k]/(main|shared)|/tmp/"
    )
    found = []
    for file in FILES:
        if file.suffix in {".py", ".md", ".toml", ".json", ".js", ".sh", ""} and file != Path(__file__):
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                if forbidden.search(line):
                    found.append(f"{_name(file)}:{number}")
    assert found == []


def test_the_map_of_promises_names_tests_and_commands_that_are_there() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    paths = re.findall(r"\btests/[\w/]+\.py", text)
    long_forms = re.findall(r"python -m tests\.torture (\w+)", text)
    modules = [name.replace(".", "/") for name in re.findall(r"python -m (tests[\w.]*)", text)]
    files = [
        *paths,
        *(f"tests/torture/{name}.py" for name in long_forms),
        *(f"{m}.py" if (ROOT / m).with_suffix(".py").exists() else f"{m}/__main__.py" for m in modules),
    ]
    assert len(files) > 40
    assert [name for name in files if not (ROOT / name).is_file()] == []
    rows = {f"R{n}" for n in (1, 3, 4, 5, 6, 7, 8, 9, 10)} | {f"N{n}" for n in (1, 3, 4, 5, 6, 7, 8)} | {"M1"}
    assert rows <= set(re.findall(r"^\| (\w+) \|", text, re.MULTILINE))
