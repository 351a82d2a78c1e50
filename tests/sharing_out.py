"""How the tests are shared out when two pytest processes run them (`-n 2`): by file, for each file has a broker of
its own, and all of tests/pipeline to one process, for it has one Spark session, as all of tests/peers, for it has
one real Kafka."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

PIPELINE = "tests/pipeline"
PEERS = "tests/peers"
# Eleven, six and four minutes of forty.
LONGEST = (PIPELINE, "tests/simulation/test_simulation.py", PEERS)


def share_of(nodeid: str) -> str:
    """The share that a test belongs to: its file, or the pipeline, or the peers."""
    path = nodeid.split("::", 1)[0]
    return next((whole for whole in (PIPELINE, PEERS) if PurePosixPath(path).is_relative_to(whole)), path)


class ByFile(LoadScopeScheduling):
    """A process takes the next file when it has done its last one."""

    def _split_scope(self, nodeid: str) -> str:
        # Without the Spark session and the Kafka nothing needs to stay together but a file.
        return nodeid.split("::", 1)[0] if self.config.getoption("--fast") else share_of(nodeid)


def begins_later(nodeid: str) -> bool:
    """A key to sort tests by: the longest shares begin first, so that none runs alone at the end."""
    return share_of(nodeid) not in LONGEST
