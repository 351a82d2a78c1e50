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
    def in_floors(self) -> float | None:
        """How many times the least; None where that was not measured."""
        return self.value / self.floor if self.floor else None

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
    # "kafka" or "rest" where it can load another server through that protocol; else None.
    protocol: str | None = None


def case(run: Callable[[int], list[Figure]]) -> Callable[[int], list[Figure]]:
    """Register a function as a case under its own name; its docstring says what is measured."""
    return _register(run, None)


def case_for_any(protocol: str) -> Callable[[Callable[[int], list[Figure]]], Callable[[int], list[Figure]]]:
    """Register a case that can load any server through that protocol: "kafka" or "rest"."""
    return lambda run: _register(run, protocol)


def _register(run: Callable[[int], list[Figure]], protocol: str | None) -> Callable[[int], list[Figure]]:
    doc = (run.__doc__ or "").strip().partition("\n")[0]
    CASES[run.__name__] = Case(run.__name__, run, doc, protocol)
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
