"""A job that is killed with all its processes, again and again, and what is in its sink afterwards.

Each round starts the job over the same state, waits for a number of steps of its progress (offsets
written, a file begun, a manifest, a commit; records, for a replay), then 0 to 0.9 s more, and kills: the process
group alone, whose Python workers live in a group of their own and become orphans, or all of them. In the
end the job runs through, and per partition count, distinct offsets, least and greatest are compared with the topic,
by a reader that knows nothing of us, and (for tables) by Spark, in the job `verify`.

The control is `--sink spark`: Spark's own Parquet sink, killed in the same way and read by the same naive reader. It
must hold rows twice, else the kills prove nothing. A topic is at least once: it must hold every row once by the
header `sluice.written`, and is its own control by what it holds twice without it.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from typing import NamedTuple

from tests.broker_process import ROOT
from tests.pipeline.topics import Topics
from tests.pipeline.victims import PARTITIONS, Held, Victim

# Micro-batches that a job has before it when a round begins: it must not be done before it is killed.
AHEAD_BATCHES = 12
# Steps of one kind that a round waits for, at most.
MOST_STEPS = 3
# A round in which the job ran to its end unharmed is made again; so often, and the test is wrong.
MOST_MISSED = 5


class Round(NamedTuple):
    """When a job was killed."""

    step: str
    steps: int
    pause: float
    orphans: bool


class Outcome(NamedTuple):
    """What is in the sink after all rounds, for a naive reader; `twice` counts rows beyond the first of each."""

    sink: str
    seed: int
    kills: list[Round]
    held: dict[int, Held]
    twice: int

    def line(self) -> str:
        """As one line of JSON."""
        told = self._asdict() | {
            "kills": len(self.kills),
            "moments": [f"{k.steps} {k.step} + {k.pause:.2f} s{' orphans' * k.orphans}" for k in self.kills],
            "held": {part: held._asdict() for part, held in self.held.items()},
        }
        return json.dumps(told)


class Source:
    """The topic that is read; it grows while the job runs."""

    def __init__(self, topics: Topics, victim: Victim) -> None:
        self._topics, self._victim = topics, victim
        self.counts = dict.fromkeys(range(PARTITIONS), 0)
        topics.create(victim.source, PARTITIONS)

    def ahead(self, batches: int) -> None:
        """Write until there are this many batches beyond the job's commits."""
        done = self._victim.done()
        for partition, count in self.counts.items():
            wanted = done.get(partition, 0) + batches * self._victim.batch // PARTITIONS
            for start in range(count, wanted, 500):
                numbers = range(start, min(start + 500, wanted))
                values = [f"{partition}:{number}:".ljust(100, ".") for number in numbers]
                self._topics.write(self._victim.source, values, partition=partition)
            self.counts[partition] = max(count, wanted)

    @property
    def held(self) -> dict[int, Held]:
        """What a sink must hold."""
        return {part: Held(count, count, 0, count - 1) for part, count in self.counts.items()}


def one_kill(victim: Victim, source: Source, chance: random.Random) -> Round:
    """Start the job and kill it on its way; what it holds then is looked at."""
    for _ in range(MOST_MISSED):
        step, steps = chance.choice(victim.steps), chance.randint(1, MOST_STEPS)
        made = Round(step, steps, chance.choice([0.0, chance.uniform(0, 0.9)]), chance.random() < 0.5)
        source.ahead(AHEAD_BATCHES)
        victim.start()
        if victim.wait_for_steps(made.step, made.steps):
            time.sleep(made.pause)
            if victim.kill(orphans=made.orphans):
                victim.look()
                return made
    raise AssertionError(f"the job was never caught: {victim.log()}")


def kills(victim: Victim, topics: Topics, rounds: int, seed: int, say: bool = False) -> Outcome:
    """All rounds, then a run to the end. Raises AssertionError when the sink does not hold what it must."""
    chance, source = random.Random(seed), Source(topics, victim)
    victim.prepare(lambda: source.ahead(AHEAD_BATCHES * (rounds + 1)))
    made: list[Round] = []
    for number in range(1, rounds + 1):
        made.append(one_kill(victim, source, chance))
        if say:
            print(f"round {number}: {made[-1]}", flush=True)
    victim.start()
    victim.finish()
    held, twice = victim.check(source.held)
    return Outcome(victim.sink, seed, made, held, twice)


def commit() -> str:
    """The commit that is checked out, for the record."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
