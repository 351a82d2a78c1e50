"""The kill loop over commits in its short form, and that it notices a broken promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import KafkaClient
from tests.crash import commit_loop


def test_commits_of_both_protocols_survive_kills(tmp_path: Path) -> None:
    assert commit_loop.run(tmp_path / "data", rounds=8, seed=20, longest=0.8) > 100


def test_a_lost_commit_is_noticed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        committer = commit_loop.Committer(broker, KafkaClient, "one", as_member=False)
        setup = KafkaClient(broker)
        setup.create_topic(commit_loop.TOPIC)
        setup.commit(committer.group, commit_loop.TOPIC, 0, 4)
        committer.answered = committer.attempted = 5
        with pytest.raises(AssertionError, match="4 is committed, 5 was answered"):
            committer.check()
        setup.close()
        committer.close()
    finally:
        broker.kill()
