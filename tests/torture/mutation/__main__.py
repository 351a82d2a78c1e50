"""`python -m tests.torture.mutation --per-package 40 --seed 1`: put small faults into the core, one at a time, and
see which of them the tests notice.

It needs `pip install sluice[mutation]`. The faults are made in a copy of the tree. For each fault the tests of its
package run until one fails; `--wide` runs more tests for the faults that these miss. cosmic-ray's databases under
`--out` keep the results, and a run that was ended goes on there. `--before DIR` compares with an earlier run of the
same sample; the exit code is 1 if a fault survives that died there.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.distribution.local import LocalDistributor
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import TestOutcome, WorkItem, WorkResult

from tests.torture.mutation.report import compare, outcomes, report, verdict
from tests.torture.mutation.sample import sample

ROOT = Path(__file__).resolve().parents[3]
NOT_COPIED = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "results")
# A fault may make a list without end.
MEMORY_BYTES = 4 << 30
# The end of tests that neither finish nor use the processor.
WAIT_SECONDS = 1200
# Hypothesis draws the same examples for every mutant, and keeps none.
PYTEST = (
    sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider",
    "--hypothesis-profile=ci", "--timeout=120",
)  # fmt: skip


@dataclass(frozen=True)
class Tests:
    """The tests that run for a package: its own, and those that `--wide` adds for what these do not notice."""

    own: tuple[str, ...]
    wide: tuple[str, ...]


PACKAGES = {
    "core/groups": Tests(
        own=("tests/core/groups",), wide=("tests/core/consumers", "tests/core/listeners/kafka")
    ),
    "core/log": Tests(own=("tests/core/log",), wide=("tests/core/broker", "tests/core/replication")),
    "core/protocol": Tests(own=("tests/core/protocol",), wide=("tests/core/listeners/kafka", "tests/golden")),
}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-package", type=int, default=40, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="may be repeated; otherwise all")
    parser.add_argument("--wide", action="store_true", help="run more tests for the faults that survive")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "mutation", help="where the results are kept"
    )
    parser.add_argument("--before", type=Path, help="the --out of an earlier run, to compare with")
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
            try_all(package, items, out, wide=arguments.wide)
            print(report(package, out), flush=True)
            worse |= before is not None and compare(package, before, out)
    return 1 if worse else 0


def try_all(package: str, items: list[WorkItem], out: Path, *, wide: bool) -> None:
    """Run the tests for each mutant that has no result yet."""
    tests = PACKAGES[package]
    name = package.replace("/", "-")
    _try(items, package, tests.own, out / f"{name}.sqlite")
    if wide:
        alive = {
            job_id for job_id, outcome in outcomes(out / f"{name}.sqlite").items() if outcome == "survived"
        }
        left = [item for item in items if item.job_id in alive]
        _try(left, package, tests.wide, out / f"{name}-wide.sqlite")


def _try(items: list[WorkItem], package: str, tests: tuple[str, ...], path: Path) -> None:
    with use_db(str(path)) as kept:
        known = {item.job_id for item in kept.work_items}
        if not known <= {item.job_id for item in items}:
            sys.exit(f"{path} holds another sample: use another --out, or delete it.")
        kept.add_work_items(item for item in items if item.job_id not in known)
        done = {job_id for job_id, _ in kept.results}
        left = [item for item in items if item.job_id not in done]
        if not left:
            return
        cpu_seconds = _time_limit(package, tests)
        count = len(items)

        def keep(job_id: str, result: WorkResult) -> None:
            if result.test_outcome in (None, TestOutcome.INCOMPETENT):
                sys.exit(f"{job_id}: no result: {result.output}")
            kept.set_result(job_id, result)
            print(f"{kept.num_results:3}/{count} {verdict(result):9} {job_id}", flush=True)

        for item in left:
            LocalDistributor()(
                [item], _command(_nearest_first(item, tests), cpu_seconds), WAIT_SECONDS, {}, keep
            )


def _nearest_first(item: WorkItem, tests: tuple[str, ...]) -> tuple[str, ...]:
    """The test file with the name of the changed module is the one that will fail, if any."""
    (spec,) = item.mutations
    near = [Path(directory) / f"test_{spec.module_path.name}" for directory in tests]
    return (*(str(file) for file in near if file.is_file()), *tests)


def _command(tests: Iterable[str], cpu_seconds: int = WAIT_SECONDS) -> str:
    return f"prlimit --core=0 --as={MEMORY_BYTES} --cpu={cpu_seconds} {' '.join((*PYTEST, *tests))}"


def _time_limit(package: str, tests: tuple[str, ...]) -> int:
    """Return the processor seconds that the tests of one mutant may use; a wall clock would tell of other programs.

    Without a fault the tests must pass. With a module that raises they must fail: they import the copy.
    """
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
    print(f"{package}: {' '.join(tests)} use {took:.1f} s; a mutant has {limit} s", flush=True)
    return limit


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
