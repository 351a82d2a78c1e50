"""Transactions as real clients do them: what readers see, and what a producer is told that may not continue."""

from __future__ import annotations

import re
import time
import uuid
from typing import NamedTuple

import pytest

from core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, RefusedError
from tests.clients.drivers.confluent import Confluent
from tests.clients.every_client import GetClient, case
from tests.clients.transactional.transactional import (
    LAST,
    InJava,
    Transactional,
    TransactionalAioKafka,
    TransactionalConfluent,
    TransactionalFranzGo,
    TransactionalJava39,
    TransactionalJava41,
    TransactionalKafkaJs,
    TransactionalKafkaPython,
    TransactionalSarama,
)
from tests.clients.wire import KEYS, Wire

DRIVERS: tuple[type[Transactional], ...] = (
    TransactionalConfluent,
    TransactionalKafkaPython,
    TransactionalAioKafka,
    TransactionalKafkaJs,
    TransactionalFranzGo,
    TransactionalSarama,
    TransactionalJava39,
    TransactionalJava41,
)
NEEDED = {driver.installed_as for driver in DRIVERS if driver.installed_as}
EVERY = [case(driver) for driver in DRIVERS]
# Long enough to send a record on a busy machine, short enough to wait for.
SHORT_MS = 1000
# A line of the Java client's log: a request with its version.
_SENT = re.compile(r"Sending (\w+) request with header RequestHeader\(apiKey=\w+, apiVersion=(\d+)")
_OF_TRANSACTIONS = ("INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "PRODUCE", "END_TXN")

JAVA_VERSIONS: dict[type[Transactional], dict[str, set[int]]] = {
    # The second kind: nothing is added before it is used, and each end brings a new epoch.
    TransactionalJava41: {"INIT_PRODUCER_ID": {5}, "PRODUCE": {13}, "END_TXN": {5}},
    TransactionalJava39: {
        "INIT_PRODUCER_ID": {5},
        "ADD_PARTITIONS_TO_TXN": {3},
        "PRODUCE": {11},
        "END_TXN": {4},
    },
}


class Topics(NamedTuple):
    """Two topics of a test, of one partition each."""

    orders: str
    audit: str


@pytest.fixture
def topics(wire: Wire) -> Topics:
    """Two new topics."""
    return _new_topics(wire)


def _new_topics(wire: Wire) -> Topics:
    found = Topics(f"orders-{uuid.uuid4().hex}", f"audit-{uuid.uuid4().hex}")
    for topic in found:
        wire.create_topic(topic)
    return found


@pytest.fixture
def transactional(client: GetClient, driver: type[Driver]) -> Transactional:
    """The client of a test."""
    return _transactional(client, driver)


def _transactional(client: GetClient, driver: type[Driver]) -> Transactional:
    found = client(driver)
    assert isinstance(found, Transactional)
    return found


@pytest.fixture
def transactional_id() -> str:
    """A transactional id of the test's own."""
    return f"id-{uuid.uuid4().hex}"


def _seen(by: Transactional, topics: Topics, *, committed: bool) -> list[list[str]]:
    """What a client reads of both topics, up to records after all of them."""
    return [by.values(topic, committed=committed) for topic in topics]


def _end(broker: BrokerProcess, topics: Topics) -> None:
    with Wire(broker.kafka_address) as wire:
        for topic in topics:
            wire.write(topic, LAST)


@pytest.mark.parametrize("driver", EVERY)
def test_readers_of_committed_records_see_committed_transactions(
    broker: BrokerProcess, transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    transactional.open("one", transactional_id)
    for number, ends in enumerate(("commit", "abort", "commit", "commit", "abort")):
        transactional.begin("one")
        transactional.send("one", topics.orders, f"{number}-a", f"{number}-b")
        transactional.send("one", topics.audit, f"{number}")
        transactional.commit("one") if ends == "commit" else transactional.abort("one")
    _end(broker, topics)
    assert _seen(transactional, topics, committed=True) == [
        ["0-a", "0-b", "2-a", "2-b", "3-a", "3-b"],
        ["0", "2", "3"],
    ]
    assert _seen(transactional, topics, committed=False) == [
        [f"{number}-{letter}" for number in range(5) for letter in "ab"],
        [f"{number}" for number in range(5)],
    ]


@pytest.mark.parametrize("driver", EVERY)
def test_a_second_producer_fences_the_first(
    broker: BrokerProcess, transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    transactional.open("old", transactional_id)
    transactional.begin("old")
    transactional.send("old", topics.orders, "by the old one")
    transactional.open("new", transactional_id)
    with pytest.raises(RefusedError) as refused:
        transactional.commit("old")
    assert refused.value.code == transactional.fenced, refused.value
    transactional.begin("new")
    transactional.send("new", topics.orders, "by the new one")
    transactional.commit("new")
    _end(broker, topics)
    assert _seen(transactional, topics, committed=True) == [["by the new one"], []]
    assert _seen(transactional, topics, committed=False) == [["by the old one", "by the new one"], []]


@pytest.mark.parametrize("driver", EVERY)
def test_a_transaction_that_timed_out_cannot_be_committed(
    broker: BrokerProcess, transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    transactional.open("late", transactional_id, SHORT_MS)
    transactional.begin("late")
    transactional.send("late", topics.orders, "too late")
    _wait_until_aborted(broker, transactional_id)
    with pytest.raises(RefusedError) as refused:
        transactional.commit("late")
    assert refused.value.code == (transactional.late or transactional.fenced), refused.value
    # What such a program does: it begins again.
    transactional.open("again", transactional_id)
    transactional.begin("again")
    transactional.send("again", topics.orders, "in time")
    transactional.commit("again")
    _end(broker, topics)
    assert _seen(transactional, topics, committed=True) == [["in time"], []]
    assert _seen(transactional, topics, committed=False) == [["too late", "in time"], []]


def _wait_until_aborted(broker: BrokerProcess, transactional_id: str) -> None:
    deadline = time.monotonic() + CALL_SECONDS
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with Wire(broker.kafka_address) as wire:
        while time.monotonic() < deadline:
            (found,) = wire.call(KEYS["DescribeTransactions"], asked, 0).transaction_states
            if found.transaction_state == "CompleteAbort":
                return
            assert found.transaction_state in ("Ongoing", "PrepareAbort")
            time.sleep(0.05)
    raise AssertionError(f"{transactional_id} is open for {CALL_SECONDS} s")


# franz-go commits offsets only of what its own group session has consumed.
@pytest.mark.parametrize("driver", [case(driver) for driver in DRIVERS if driver is not TransactionalFranzGo])
def test_offsets_of_a_group_move_when_their_transaction_commits(
    client: GetClient, transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    group = f"group-of-{transactional_id}"
    committed: list[dict[int, int]] = []
    transactional.open("one", transactional_id)
    for offset, end in ((5, transactional.abort), (7, transactional.commit), (9, transactional.abort)):
        transactional.begin("one")
        transactional.send("one", topics.audit, f"up to {offset}")
        transactional.send_offset("one", group, topics.orders, offset)
        committed.append(client(Confluent).group_offsets(group, topics.orders))
        end("one")
        committed.append(client(Confluent).group_offsets(group, topics.orders))
    assert committed == [{}, {}, {}, {0: 7}, {0: 7}, {0: 7}]


@pytest.mark.parametrize(
    "drivers",
    [pytest.param(DRIVERS, marks=[pytest.mark.client(name) for name in NEEDED], id="every client")],
)
def test_transactions_continue_over_a_kill_of_the_broker(
    broker: BrokerProcess, client: GetClient, wire: Wire, drivers: tuple[type[Transactional], ...]
) -> None:
    every = {driver.name: _transactional(client, driver) for driver in drivers}
    topics = {name: _new_topics(wire) for name in every}
    for name, one in every.items():
        one.open("one", f"killed-{name}")
    for ends in ("commit", "abort"):
        for name, one in every.items():
            one.begin("one")
            one.send("one", topics[name].orders, f"{ends}: before")
            one.send("one", topics[name].audit, f"{ends}: before")
        broker.kill()
        broker.start()
        for name, one in every.items():
            one.send("one", topics[name].orders, f"{ends}: after")
            one.commit("one") if ends == "commit" else one.abort("one")
    for name in every:
        _end(broker, topics[name])
    committed = [["commit: before", "commit: after"], ["commit: before"]]
    everything = [
        ["commit: before", "commit: after", "abort: before", "abort: after"],
        ["commit: before", "abort: before"],
    ]
    assert {name: _seen(one, topics[name], committed=True) for name, one in every.items()} == dict.fromkeys(
        every, committed
    )
    assert {name: _seen(one, topics[name], committed=False) for name, one in every.items()} == dict.fromkeys(
        every, everything
    )


@pytest.mark.parametrize("driver", [case(driver) for driver in JAVA_VERSIONS])
def test_the_java_client_sends_the_requests_of_its_kind_of_transactions(
    transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    assert isinstance(transactional, InJava)
    logged = _logged(transactional)
    transactional.open("one", transactional_id)
    for end in (transactional.commit, transactional.abort):
        transactional.begin("one")
        transactional.send("one", topics.orders, "a record")
        end("one")
    assert _sent(transactional, logged) == JAVA_VERSIONS[type(transactional)]


def _logged(transactional: InJava) -> int:
    """The size of the log of a client; there is none before it has started."""
    return transactional.log.stat().st_size if transactional.log.exists() else 0


def _sent(transactional: InJava, logged: int) -> dict[str, set[int]]:
    """The requests of transactions that are in the log of a client after that size, with their versions."""
    found: dict[str, set[int]] = {}
    for name, version in _SENT.findall(transactional.log.read_bytes()[logged:].decode()):
        if name in _OF_TRANSACTIONS:
            found.setdefault(name, set()).add(int(version))
    return found


@pytest.mark.parametrize("driver", [case(driver) for driver in JAVA_VERSIONS])
def test_a_transaction_is_committed_by_what_a_checkpoint_has_of_it(
    broker: BrokerProcess, transactional: Transactional, topics: Topics, transactional_id: str
) -> None:
    """Flink's sink: it flushes, stores the producer id and the epoch, and commits by these, perhaps again."""
    assert isinstance(transactional, InJava)
    transactional.open("before", transactional_id)
    transactional.begin("before")
    transactional.send("before", topics.orders, "in the checkpoint")
    stored = transactional.identity("before")
    broker.kill()
    broker.start()
    logged = _logged(transactional)
    transactional.resume("restored", transactional_id, stored)
    transactional.commit("restored")
    transactional.resume("again", transactional_id, stored)
    try:
        transactional.commit("again")
    except RefusedError as error:
        # A 4.1 that knows the broker's features by then has raised its epoch after the first commit.
        assert error.code == transactional.fenced, error
    # A commit of the first kind, also of a transaction of the second.
    assert _sent(transactional, logged)["END_TXN"] == {4}
    # What is open and in no checkpoint is aborted by the next producer of the id.
    transactional.open("after", transactional_id)
    transactional.begin("after")
    transactional.send("after", topics.orders, "in no checkpoint")
    lost = transactional.identity("after")
    transactional.open("next", transactional_id)
    transactional.resume("late", transactional_id, lost)
    with pytest.raises(RefusedError) as refused:
        transactional.commit("late")
    assert refused.value.code == transactional.fenced, refused.value
    _end(broker, topics)
    assert _seen(transactional, topics, committed=True) == [["in the checkpoint"], []]
