"""What became of the mutants, as Markdown: a line of totals for each package, and the mutants that survived."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkResult


def verdict(result: WorkResult) -> str:
    """Return `killed`, `timed out` (a kind of killed: the tests did not end) or `survived`."""
    if result.test_outcome is TestOutcome.SURVIVED:
        return "survived"
    output = result.output or ""
    # A process that used its processor time up is killed: its output has no summary.
    ended = any(word in output for word in ("failed", "error", "Error")) and "Timeout (>" not in output
    return "killed" if ended else "timed out"


def outcomes(path: Path) -> dict[str, str]:
    """Return the verdict of each mutant in a database of results, by job id; nothing if there is no database."""
    if not path.exists():
        return {}
    with use_db(str(path), WorkDB.Mode.open) as kept:
        return {job_id: verdict(result) for job_id, result in kept.results}


def _both(package: str, out: Path) -> tuple[dict[str, str], dict[str, str]]:
    name = package.replace("/", "-")
    return outcomes(out / f"{name}.sqlite"), outcomes(out / f"{name}-wide.sqlite")


def report(package: str, out: Path) -> str:
    """Return the totals of a package and its survivors, with what each changed."""
    own, wide = _both(package, out)
    count = Counter(own.values())
    wider = sum(value != "survived" for value in wide.values())
    lines = [
        "| package | mutants | killed | timed out | survived | of these killed by more tests |",
        "|---|---|---|---|---|---|",
        f"| {package} | {len(own)} | {count['killed']} | {count['timed out']} | {count['survived']} "
        f"| {wider if wide else '–'} |",
        "",
    ]
    for job_id, (was, now) in _changes(package, out).items():
        if own[job_id] == "survived":
            also = f" ({wide[job_id]} by more tests)" if wide.get(job_id, "survived") != "survived" else ""
            lines += [f"- {job_id}{also}", f"  `{was}` → `{now}`"]
    return "\n".join(lines)


def _changes(package: str, out: Path) -> dict[str, tuple[str, str]]:
    """The changed lines of each mutant, before and after."""
    found = {}
    with use_db(str(out / f"{package.replace('/', '-')}.sqlite"), WorkDB.Mode.open) as kept:
        for job_id, result in sorted(kept.results):
            lines = (result.diff or "").splitlines()
            sides = [
                " ".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != sign * 3)
                for sign in "-+"
            ]
            found[job_id] = (sides[0], sides[1])
    return found


def compare(package: str, before: Path, after: Path) -> bool:
    """Print what an earlier run of the same sample had otherwise; return whether a mutant survives that died there.

    A mutant that only the wider tests killed counts as killed.
    """
    then, now = ({**own, **wide} for own, wide in (_both(package, before), _both(package, after)))
    if then.keys() != now.keys():
        raise SystemExit(f"{package}: the two runs do not have the same mutants.")
    alive = sorted(job_id for job_id in now if now[job_id] == "survived" and then[job_id] != "survived")
    died = sorted(job_id for job_id in now if then[job_id] == "survived" and now[job_id] != "survived")
    killed_then, killed_now = (sum(value != "survived" for value in run.values()) for run in (then, now))
    print(f"{package}: {killed_then} of {len(then)} died before, {killed_now} die now")
    for text, job_ids in (("survives now", alive), ("dies now", died)):
        for job_id in job_ids:
            print(f"- {text}: {job_id}")
    return bool(alive)
