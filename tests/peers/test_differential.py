"""Sluice answers as Kafka does, in every API and version that both serve, but for the differences that are known."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from core.protocol.apis import APIS
from tests.broker_process import BrokerProcess
from tests.peers import group_scripts, scripts, test_administration
from tests.peers.differences import KNOWN
from tests.peers.differential import Found, Known, Side, compare
from tests.peers.kafka import KafkaProcess
from tests.peers.raw import Peer

SCRIPTS = (*scripts.SCRIPTS, *group_scripts.SCRIPTS)
# As the node of tests/peers/kafka.py: a group does not wait for more members.
SETTINGS = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}

Versions = Mapping[int, Sequence[int]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A Sluice whose log must hold no traceback in the end."""
    process = BrokerProcess(tmp_path_factory.mktemp("differential") / "data", environment=SETTINGS)
    try:
        yield process.start()
    finally:
        process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()[-20_000:]


@pytest.fixture(scope="module")
def versions(kafka: KafkaProcess, ours: BrokerProcess) -> Versions:
    """The versions of each API that both advertise."""
    peers = [Peer(kafka.address), Peer(ours.kafka_address)]
    theirs, mine = [peer.served() for peer in peers]
    for peer in peers:
        peer.close()
    return {key: [one for one in theirs[key] if one in mine[key]] for key in theirs.keys() & mine.keys()}


@pytest.fixture(scope="module")
def covered() -> set[Known]:
    """The known differences that were found."""
    return set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_answers_are_kafkas(
    script: Callable[[Side], None],
    kafka: KafkaProcess,
    ours: BrokerProcess,
    versions: Versions,
    covered: set[Known],
) -> None:
    sides = [Side(Peer(address), versions, "diff.") for address in (kafka.address, ours.kafka_address)]
    for side in sides:
        script(side)
        side.peer.close()
    unknown: list[Found] = []
    for found in compare(*sides):
        known = [one for one in KNOWN if one.covers(found)]
        covered.update(known)
        if not known:
            unknown.append(found)
    assert not unknown, "\n".join(map(str, unknown))


def test_each_known_difference_is_still_there(covered: set[Known], request: pytest.FixtureRequest) -> None:
    ran = sum(item.name.startswith("test_answers_are_kafkas") for item in request.session.items)
    if ran == len(SCRIPTS):  # all of them, not a selection by hand
        assert [one for one in KNOWN if one not in covered] == []


def test_every_api_that_both_serve_is_asked(versions: Versions) -> None:
    """An API that is served from now on needs a script, or cases in `test_administration`.

    Logins have other tests: `test_scram`, and tests/clients/test_sasl.py with real clients. Transactions are compared
    with a recording: tests/golden/test_kafka_4_1_transactions.py. The protocols of KIP-848 and KIP-932 are
    compared through Kafka's own clients and tools: tests/clients, test_tools, test_share_tools.
    """
    text = "".join(map(inspect.getsource, (scripts, group_scripts)))
    asked = {case.key for case in test_administration.CASES} | {
        17,
        36,
        24,
        25,
        26,
        27,
        28,
        65,
        66,
        68,
        69,
        *range(76, 80),
        90,
        91,
        92,
    }
    assert [APIS[key].name for key in versions.keys() - asked if f'"{APIS[key].name}"' not in text] == []


def test_a_difference_is_found() -> None:
    known = Known("a*", "x[*].y", "1", "*", "why", (2, 3))
    assert known.covers(Found("ab", "Api", 2, "x[7].y", "1", "2"))
    assert not known.covers(Found("ab", "Api", 4, "x[7].y", "1", "2"))
    assert not known.covers(Found("ab", "Api", 2, "x[7].y", "2", "2"))
    assert not known.covers(Found("ab", "Api", 2, "x[7].yz", "1", "2"))
