"""Small faults are put into the core, one at a time: how many of them do the tests notice?

It needs `pip install sluice[mutation]`: cosmic-ray finds the places, makes the faults (mutants), keeps the results.
The same seed and the same code give the same mutants. They are made in a copy of the tree. For each, the tests of its
package run until one fails. A run that was stopped continues if it gets the same `--out`. `--before DIR` names the
`--out` of a run of the same sample with other tests, and tries what died there; the exit code is 1 if any of it
survives.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.distribution.local import LocalDistributor
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "results")
# A fault may make a list without end.
MEMORY_BYTES = 4 << 30
# The end of tests that neither finish nor use the processor.
WAIT_SECONDS = 1200
# How the output of a command ends that failed, and what it then holds if time ended it: pytest's limit for a test, or
# a signal because of the limit of processor time.
EXIT = "exit code"
ENDLESS = ("Timeout (>", f"{EXIT} {128 + signal.SIGXCPU}", f"{EXIT} {128 + signal.SIGKILL}")
# Hypothesis draws the same examples for every mutant, and keeps none.
PYTEST = (
    sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider",
    "--hypothesis-profile=ci", "--timeout=120",
)  # fmt: skip


# The tests of each package.
PACKAGES = {
    "core/groups": "tests/core/groups",
    "core/log": "tests/core/log",
    "core/protocol": "tests/core/protocol",
}
# For numbers, enumerations and constants `is` says the same as `==`.
SAME_MEANING = {
    f"core/ReplaceComparisonOperator_{name}" for name in ("Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq")
}
# The fields of a message are its schema: here an annotation is read when the program runs.
READS_ANNOTATIONS = "core/protocol"

Place = tuple[int, int]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-package", type=int, default=40, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="may be repeated; otherwise all")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "mutation", help="where the results are kept"
    )
    parser.add_argument("--before", type=Path, help="the --out of an earlier run: try what died there")
    arguments = parser.parse_args()
    out, before = arguments.out.resolve(), arguments.before and arguments.before.resolve()
    out.mkdir(parents=True, exist_ok=True)
    worse = False
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        for package in arguments.package or PACKAGES:
            items = sample(package, arguments.per_package, arguments.seed)
            if before is not None:
                items = that_died(items, outcomes(database(package, before)))
            try_all(package, items, database(package, out))
            print(report(package, database(package, out)), flush=True)
            worse |= before is not None and "survived" in outcomes(database(package, out)).values()
    return 1 if worse else 0


def that_died(items: list[WorkItem], before: dict[str, str]) -> list[WorkItem]:
    """Return the mutants that an earlier run of the same sample killed."""
    if before.keys() != {item.job_id for item in items}:
        sys.exit(
            "The earlier run had other mutants: give it the same --per-package and --seed, and the same code."
        )
    return [item for item in items if before[item.job_id] != "survived"]


def database(package: str, out: Path) -> Path:
    """Return where the results of a package are kept."""
    return out / f"{package.replace('/', '-')}.sqlite"


def try_all(package: str, items: list[WorkItem], path: Path) -> None:
    """Run the tests for each mutant that has no result yet, and keep the results."""
    with use_db(str(path)) as kept:
        known = {item.job_id for item in kept.work_items}
        if not known <= {item.job_id for item in items}:
            sys.exit(f"{path} holds another sample: use another --out, or delete it.")
        kept.add_work_items(item for item in items if item.job_id not in known)
        done = {job_id for job_id, _ in kept.results}
        left = [item for item in items if item.job_id not in done]
        if not left:
            return
        cpu_seconds = _time_limit(package)
        count = len(items)

        def keep(job_id: str, result: WorkResult) -> None:
            if result.test_outcome in (None, TestOutcome.INCOMPETENT):
                sys.exit(f"{job_id}: no result: {result.output}")
            kept.set_result(job_id, result)
            print(f"{kept.num_results:3}/{count} {verdict(result):9} {job_id}", flush=True)

        for item in left:
            command = _command_for(item, PACKAGES[package], cpu_seconds)
            LocalDistributor()([item], command, WAIT_SECONDS, {}, keep)


def _command_for(item: WorkItem, tests: str, cpu_seconds: int) -> str:
    """The test file with the name of the changed module comes first: it is quick and notices most of its faults."""
    (spec,) = item.mutations
    near = f"{tests}/test_{spec.module_path.name}"
    commands = [_command(some, cpu_seconds) for some in (near, tests) if Path(some).exists()]
    script = f"{{ {' && '.join(commands)}; }} 2>&1 || {{ code=$?; echo {EXIT} $code; exit $code; }}"
    return f"sh -c {shlex.quote(script)}"


def _command(tests: str, cpu_seconds: int = WAIT_SECONDS) -> str:
    return f"prlimit --core=0 --as={MEMORY_BYTES} --cpu={cpu_seconds} {shlex.join((*PYTEST, tests))}"


def _time_limit(package: str) -> int:
    """Return the processor seconds that the tests of one mutant may use; a wall clock would tell of other programs.

    Without a fault the tests must pass. With a module that raises they must fail: they import the copy.
    """
    tests = PACKAGES[package]
    # The runs themselves compile without writing: a mutant's file must never be taken for the original's.
    run_tests(f"{sys.executable} -m compileall -q app core tests", WAIT_SECONDS)
    before = _processor_seconds()
    outcome, output = run_tests(_command(tests), WAIT_SECONDS)
    took = _processor_seconds() - before
    if outcome is not TestOutcome.SURVIVED:
        sys.exit(f"the tests fail without a fault:\n{output}")
    module = max(Path(package).glob("*.py"), key=lambda file: file.stat().st_size)
    text = module.read_text()
    module.write_text(f"{text}\nraise AssertionError('a fault that every test notices')\n")
    outcome, _ = run_tests(_command(tests), WAIT_SECONDS)
    module.write_text(text)
    if outcome is not TestOutcome.KILLED:
        sys.exit(f"the tests pass with a broken {module}: they do not import the copy.")
    limit = 10 + round(2 * took)
    print(f"{package}: {tests} use {took:.1f} s; a mutant has {limit} s", flush=True)
    return limit


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- the sample


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


# --- the results


def verdict(result: WorkResult) -> str:
    """Return `killed`, `timed out` (a kind of killed: the tests did not end) or `survived`."""
    if result.test_outcome is TestOutcome.SURVIVED:
        return "survived"
    output = result.output or ""
    return "timed out" if output == "timeout" or any(sign in output for sign in ENDLESS) else "killed"


def outcomes(path: Path) -> dict[str, str]:
    """Return the verdict of each mutant in a database of results, by job id."""
    if not path.exists():
        sys.exit(f"There are no results in {path}.")
    with use_db(str(path), WorkDB.Mode.open) as kept:
        return {job_id: verdict(result) for job_id, result in kept.results}


def report(package: str, path: Path) -> str:
    """Return the totals of a package and its survivors, with what each changed, as Markdown."""
    found = outcomes(path)
    count = Counter(found.values())
    lines = [
        "| package | mutants | killed | timed out | survived |",
        "|---|---|---|---|---|",
        f"| {package} | {len(found)} | {count['killed']} | {count['timed out']} | {count['survived']} |",
        "",
    ]
    for job_id, (was, now) in _changes(path).items():
        if found[job_id] == "survived":
            lines += [f"- {job_id}", f"  `{was}` → `{now}`"]
    return "\n".join(lines)


def _changes(path: Path) -> dict[str, tuple[str, str]]:
    """The changed lines of each mutant, before and after."""
    found = {}
    with use_db(str(path), WorkDB.Mode.open) as kept:
        for job_id, result in sorted(kept.results):
            lines = (result.diff or "").splitlines()
            sides = [
                " ".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != sign * 3)
                for sign in "-+"
            ]
            found[job_id] = (sides[0], sides[1])
    return found
