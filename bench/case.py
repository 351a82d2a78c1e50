"""What a case of the bench is, and what it gives back."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

CASES: dict[str, Case] = {}
"""Every case by its name, in the order of the table."""


@dataclass(frozen=True)
class Figure:
    """One measured number. `target` is the most it may be; `floor` what the work costs at the very least,
    measured in the same run where that is possible."""

    what: str
    value: float
    unit: str
    target: float | None = None
    floor: float | None = None
    samples: list[float] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the target is met; true where there is none."""
        return self.target is None or self.value <= self.target


@dataclass(frozen=True)
class Case:
    """A named measurement, run with a number of repeats."""

    name: str
    run: Callable[[int], list[Figure]]
    doc: str


def case(run: Callable[[int], list[Figure]]) -> Callable[[int], list[Figure]]:
    """Register a function as a case under its own name; its docstring says what is measured."""
    CASES[run.__name__] = Case(run.__name__, run, (run.__doc__ or "").strip().partition("\n")[0])
    return run


def least_of(
    what: str, samples: list[float], unit: str, target: float | None = None, floor: float | None = None
) -> Figure:
    """The least of repeated measurements of processor time.

    A busy neighbour, a cold cache and memory that a virtual machine has to fetch from its host first only ever
    add to it; the median is shown beside it.
    """
    return Figure(what, min(samples), unit, target, floor, samples)


def median_of(
    what: str, samples: list[float], unit: str, target: float | None = None, floor: float | None = None
) -> Figure:
    """The median of repeated measurements of anything else."""
    return Figure(what, statistics.median(samples), unit, target, floor, samples)
