"""A fixed sample of small faults (mutants) in one package: the same seed and the same code give the same mutants.

cosmic-ray finds the places and makes the faults. One place has up to eleven faults (`+` becomes `-`, `*`, …), so the
sample draws places first and then one fault for each: otherwise arithmetic would fill the sample.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, WorkItem

# For numbers, enumerations and constants `is` says the same as `==`.
SAME_MEANING = {
    f"core/ReplaceComparisonOperator_{name}" for name in ("Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq")
}
# The fields of a message are its schema: here an annotation is read when the program runs.
READS_ANNOTATIONS = "core/protocol"

Place = tuple[int, int]


def sample(package: str, size: int, seed: int) -> list[WorkItem]:
    """Return at most `size` mutants of a package such as `core/log`, ordered by file and line.

    Paths are relative to the current directory. The job id of a mutant names its file, line, column and fault.
    """
    places: dict[tuple[Path, Place], list[MutationSpec]] = defaultdict(list)
    for spec in _all_mutants(package):
        places[spec.module_path, spec.start_pos].append(spec)
    draw = random.Random(seed)
    shuffled = draw.sample(sorted(places), len(places))
    faults = (draw.choice(places[place]) for place in shuffled)
    chosen = list(islice(filter(_compiles, faults), size))
    chosen.sort(key=lambda spec: (spec.module_path, spec.start_pos))
    return [WorkItem.single(_job_id(spec), spec) for spec in chosen]


def _compiles(spec: MutationSpec) -> bool:
    """Return whether the fault is Python; cosmic-ray also changes the `*` before keyword-only parameters."""
    operator = get_operator(spec.operator_name)()
    try:
        compile(
            mutate_code(spec.module_path.read_text(), operator, spec.occurrence), spec.module_path, "exec"
        )
    except SyntaxError:
        return False
    return True


def _job_id(spec: MutationSpec) -> str:
    line, column = spec.start_pos
    return f"{spec.module_path}:{line}:{column} {spec.operator_name.removeprefix('core/')}#{spec.occurrence}"


def _all_mutants(package: str) -> Iterator[MutationSpec]:
    files = sorted(Path(package).rglob("*.py"))
    erased = {file: list(_erased(file)) for file in files}
    with use_db(":memory:") as found:
        init(files, found, {})
        specs = [spec for item in found.work_items for spec in item.mutations]
    specs.sort(key=lambda spec: (spec.module_path, spec.operator_name, spec.occurrence))
    for spec in specs:
        inside = any(begin <= spec.start_pos < end for begin, end in erased[spec.module_path])
        if not inside and spec.operator_name not in SAME_MEANING:
            yield spec


def _erased(file: Path) -> Iterator[tuple[Place, Place]]:
    """The places of a file where a fault says nothing: annotations that no code reads, and `@override`."""
    tree = ast.parse(file.read_text())
    fields = {id(line) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for line in node.body}
    for node in ast.walk(tree):
        nothing: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nothing = [node.returns, *(one for one in node.decorator_list if ast.unparse(one) == "override")]
        elif isinstance(node, ast.arg):
            nothing = [node.annotation]
        elif isinstance(node, ast.AnnAssign):
            is_read = id(node) in fields and file.is_relative_to(READS_ANNOTATIONS)
            # Python refuses every other operator than | between two types.
            unions = [part for part in ast.walk(node.annotation) if isinstance(part, ast.BinOp)]
            nothing = [*unions] if is_read else [node.annotation]
        for expression in filter(None, nothing):
            # One column before it is the @ of a decorator.
            yield (
                (expression.lineno, max(expression.col_offset - 1, 0)),
                (expression.end_lineno or 0, expression.end_col_offset or 0),
            )
