"""schemathesis reads openapi.json and tries every operation of a running gateway, both surfaces: with data that the
document allows, and with data that it does not.

No answer may be a 5xx, have a status, media type or shape that the document does not declare, refuse what is valid or
accept what is not; what is meant nonetheless stands in schemathesis.toml with its reason. Here it takes the same few
examples each time. By hand, with others and as many as you have patience for:

    SCHEMATHESIS_EXAMPLES=500 SCHEMATHESIS_SEED=7 python -m pytest tests/openapi

SCHEMATHESIS_ARGUMENTS takes more, such as `--include-tag topics` or `--phases stateful`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import ROOT, BrokerProcess

HERE = Path(__file__).parent
# The calls make users; without a super user access rules would refuse the calls after them.
BROKER_OPTIONS = ("--super-user", "User:ANONYMOUS")
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "3")
SEED = os.environ.get("SCHEMATHESIS_SEED")
ARGUMENTS = os.environ.get("SCHEMATHESIS_ARGUMENTS", "--phases examples,coverage,fuzzing").split()


# Half a minute of work; a machine that others use as well may take its time.
@pytest.mark.timeout(0 if "SCHEMATHESIS_EXAMPLES" in os.environ else 900)
def test_the_gateway_does_what_its_document_says(broker: BrokerProcess) -> None:
    how = ["--seed", SEED] if SEED else ["--generation-deterministic"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"),
            "run", f"{broker.http}/openapi.json", "--max-examples", EXAMPLES, *how, *ARGUMENTS,
            "--request-timeout", "20", "--continue-on-failure", "--no-color",
        ],
        cwd=ROOT,
        env={**environment, "SCHEMATHESIS_HOOKS": "tests.openapi.hooks"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-30_000:]
    if "SCHEMATHESIS_ARGUMENTS" not in os.environ:
        counts = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", done.stdout)
        assert counts and len(set(counts.groups())) == 1, done.stdout[-5_000:]
