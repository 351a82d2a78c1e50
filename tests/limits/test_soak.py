"""The soak in a very short form, and that it notices what grows (M1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.limits.churn import WORKERS
from tests.limits.soak import MIB, Sample, growth, run

SECONDS = 10
FLAT = Sample(memory=100 * MIB, descriptors=50, threads=8, sqlite=MIB, disk=20 * MIB)


def test_clients_of_all_kinds_come_and_go(tmp_path: Path) -> None:
    soak, samples = run(tmp_path, SECONDS, rate=400, say=print)
    assert len(soak.done) == len(WORKERS) and min(soak.done.values()) > 0, soak.done
    last = samples[-1]
    assert last.memory < 160 * MIB and last.descriptors < 120 and last.threads < 16, last


def test_what_grows_is_noticed() -> None:
    assert not any(too_much for _, _, too_much in growth([FLAT] * 40).values())
    leaking = [replace(FLAT, memory=FLAT.memory + number * MIB) for number in range(40)]
    found = growth(leaking)
    assert [name for name, (_, _, too_much) in found.items() if too_much] == ["memory"]
    warm = [replace(FLAT, memory=FLAT.memory // 2)] * 10 + [FLAT] * 30
    assert not growth(warm)["memory"][2]
