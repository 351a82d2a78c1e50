"""Run seeds by hand.

python -m tests.simulation --seeds 1000 [--from N] [--jobs J]     many seeds, as fast as the machine can
python -m tests.simulation --seed 4711                            one seed, with its whole trace
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.run import SECONDS, Outcome, simulate

TRACE_LINES = 60
_COLLECT_EVERY = 10
# A run takes half a second of processor time.
MOST_CPU_SECONDS = 60


def show(outcome: Outcome, lines: int = TRACE_LINES) -> str:
    """A failing seed: what was broken, the end of its trace, and how to see it again."""
    return "\n".join(
        [
            f"seed {outcome.seed}: {outcome.failure}",
            *outcome.trace[-lines:],
            f"again: PYTHONHASHSEED=0 python -m tests.simulation --seed {outcome.seed}",
        ]
    )


def many(seeds: range, jobs: int, seconds: float) -> list[Outcome]:
    """Run seeds over processes; those that failed, after a line of totals."""
    started, failed = time.monotonic(), []
    answers: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs, initializer=_prepare) as pool:
        for outcome in pool.map(_one, seeds, [seconds] * len(seeds), chunksize=5):
            answers.update(outcome.answers)
            faults.update(outcome.faults)
            if outcome.failure:
                failed.append(outcome)
                print(show(outcome), flush=True)
    print(f"{len(seeds)} seeds in {time.monotonic() - started:.0f} s, {len(failed)} failed")
    print("answers:", ", ".join(f"{name} {count}" for name, count in sorted(answers.items())))
    print("faults:", ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    return failed


def _prepare() -> None:
    """Leave Ctrl-C to the parent. Collect less: a run's objects live as long as it, and looking takes 7 % of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(200_000, 50, 1000)


def _one(seed: int, seconds: float) -> Outcome:
    def hangs(*_: object) -> None:
        command = f"PYTHONHASHSEED=0 python -m tests.simulation --seed {seed}"
        print(f"seed {seed} hangs; again: {command}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os._exit(1)

    # A loop that never waits stops virtual time, and with it every bound that the run has.
    signal.signal(signal.SIGVTALRM, hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_SECONDS)
    outcome = simulate(seed, seconds=seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if seed % _COLLECT_EVERY == 0:
        # A run leaves a whole broker in reference cycles, which Python by itself would keep for a thousand runs.
        gc.collect()
    if not outcome.failure:
        outcome.trace = []
    return outcome


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="run this one and print its trace")
    parser.add_argument("--seeds", type=int, default=1000, help="run this many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="virtual seconds under faults")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if arguments.seed is not None:
        outcome = simulate(arguments.seed, seconds=arguments.seconds)
        print("\n".join(outcome.trace))
        print(outcome.failure or "all promises were kept", outcome.answers, outcome.faults, outcome.digest)
        return 1 if outcome.failure else 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    try:
        return 1 if many(seeds, arguments.jobs, arguments.seconds) else 0
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
