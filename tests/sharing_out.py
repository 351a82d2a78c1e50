"""How the tests are shared out when pytest runs them in several processes: by file, for each file has a broker of its
own. What shares something that is slow to start stays together: the tests with a Spark session, those that kill
jobs (they have another one, so that neither half of tests/pipeline is the last to end), and all of tests/peers, for
it has one real Kafka."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

KILLS = "the kills of tests/pipeline"
PIPELINE = "tests/pipeline"
PEERS = "tests/peers"
KILLING = ("tests/pipeline/jobs/test_kills.py", "tests/pipeline/test_faults.py")
# No Spark session: a file, or all files of a directory.
APART = (
    "tests/pipeline/command",
    "tests/pipeline/decode",
    "tests/pipeline/wire",
    "tests/pipeline/jobs/test_lost_executor.py",
    "tests/pipeline/lake/test_table.py",
)
# Minutes each, the longest first; and seconds, but alone at the end of `--fast`, for it is the last file.
LONGEST = (KILLS, PIPELINE, "tests/simulation/test_simulation.py", PEERS, "tests/test_house.py")


def _is_in(path: PurePosixPath, places: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def share_of(nodeid: str) -> str:
    """The share that a test belongs to: its file, or a share of several files."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    if _is_in(path, KILLING):
        return KILLS
    if _is_in(path, APART):
        return str(path)
    return next((whole for whole in (PIPELINE, PEERS) if path.is_relative_to(whole)), str(path))


class ByFile(LoadScopeScheduling):
    """A process takes the next file when it has done its last one."""

    def _split_scope(self, nodeid: str) -> str:
        # Without the Spark session and the Kafka nothing needs to stay together but a file.
        return nodeid.split("::", 1)[0] if self.config.getoption("--fast") else share_of(nodeid)


def begins_at(nodeid: str) -> int:
    """A key to sort tests by: the longest shares begin first, so that none runs alone at the end."""
    share = share_of(nodeid)
    return LONGEST.index(share) if share in LONGEST else len(LONGEST)
