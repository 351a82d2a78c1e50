"""A Spark job is killed with all its processes: its sink holds each row once. `--sink spark` is the control.

The short form is tests/pipeline/jobs/test_kills.py; tests/pipeline/kills.py says what is compared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.pipeline.kills import commit, kills
from tests.pipeline.topics import Topics
from tests.pipeline.victims import SINKS


def by_hand(sink: str, rounds: int, seed: int, home: Path) -> int:
    """One sink with a broker of its own; answers the exit code."""
    broker = BrokerProcess(home / "broker").start()
    try:
        with Topics(broker) as topics:
            victim = SINKS[sink](home, topics)
            outcome = kills(victim, topics, rounds, seed, say=True)
            victim.verify()
    finally:
        broker.kill()
    print(f"commit {commit()}: {outcome.line()}")
    if sink == "spark" and not outcome.twice:
        print("the control holds nothing twice: the kills prove nothing")
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sink", choices=sorted(SINKS), required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args(arguments)
    print(f"sink {given.sink}, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        return by_hand(given.sink, given.rounds, given.seed, Path(directory))
