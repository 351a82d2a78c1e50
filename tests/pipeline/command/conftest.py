"""What tests of the command share: a place to work in, and a broker that need not be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess) -> Path:
    """An empty working directory; `SLUICE_BOOTSTRAP` names the broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLUICE_BOOTSTRAP", broker.kafka)
    return tmp_path
