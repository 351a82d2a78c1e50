"""`sluice queues`."""

from __future__ import annotations

import time

from tests.app.commands.running import Sluice


def filled(sluice: Sluice, topic: str, *values: str) -> None:
    sluice("produce", topic, "-p", "0", *values)


def test_a_queue_is_created_described_changed_and_deleted(sluice: Sluice, topic: str) -> None:
    filled(sluice, topic, "a", "b")
    create = ["queues", "create", topic, "-t", topic, "--from", "earliest"]
    options = ["--lock", "1m", "--delivery-limit", "3", "--backoff", "2s", "--order", "key"]
    assert sluice(*create, *options).out == f"Queue {topic} created.\n"
    assert sluice(*create, *options).out == f"Queue {topic} has these settings.\n"
    described = sluice("queues", "describe", topic)
    facts = [" ".join(line.split()) for line in described.lines]
    for fact in (
        f"Queue {topic}", f"reads {topic}", "state running", "begins earliest", "lock 1 min", "delivery limit 3",
        "back-off 2 s, times 2, up to 10 min", "dead letters none", "order by key", "available 2", "in flight 0",
    ):  # fmt: skip
        assert fact in facts, (fact, facts)
    assert sluice("queues", "describe", topic, "--json").json["stats"]["available"] == 2
    never = [*create, "--delivery-limit", "0", "--dead-letter", f"{topic}-dead", "--json"]
    changed = sluice(*never).json
    assert (changed["delivery_limit"], changed["dead_letter"]["topic"]) == (None, f"{topic}-dead")
    ((name, reads, *counts),) = sluice("queues", "list", topic).rows
    assert (name, reads, counts) == (topic, topic, ["2", "0", "0", "0", "-"])
    assert "no terminal" in sluice("queues", "delete", topic, code=2).err
    assert sluice("queues", "delete", topic, "--yes").out == f"Queue {topic} deleted.\n"
    assert "no queue" in sluice("queues", "delete", topic, "--yes", code=1).err
    assert "not there" in sluice("queues", "delete", topic, "--yes", "--if-exists").out


def test_records_are_received_and_settled(sluice: Sluice, topic: str) -> None:
    filled(sluice, topic, "a", "b", "c")
    got = sluice("queues", "receive", topic, "-t", topic, "--from", "earliest", "-n", "3", "--json").json
    first, second, third = (one["receipt"] for one in got["records"])
    settle = ["queues", "settle", topic]
    assert sluice(*settle, "-a", first, "-r", second, "--delay", "1h").out == "2 settled.\n"
    assert sluice(*settle, "-e", third, "--lock", "2m").out == "1 settled.\n"
    assert sluice(*settle, "-x", third, "--reason", "broken", "--json").json["counts"] == {"settled": 1}
    assert "already-settled" in sluice(*settle, "-a", first).out
    lost = sluice(*settle, "-a", "nonsense", code=1)
    assert lost.out == "1 invalid.\n" and "Not everything is settled" in lost.err
    assert "--accept" in sluice(*settle, code=2).err
    empty = sluice("queues", "receive", topic)
    assert empty.out == f"Queue {topic} has no record to deliver.\n"
    counts = sluice("queues", "stats", topic, "--json").json
    assert (counts["available"], counts["in_flight"], counts["delayed"]) == (0, 0, 1)


def test_a_lease_is_shown_and_accepted_at_once(sluice: Sluice, topic: str) -> None:
    filled(sluice, topic, "a", "b")
    sluice("queues", "create", topic, "-t", topic, "--from", "earliest")
    assert [row[4] for row in (line.split() for line in sluice("queues", "peek", topic).lines[1:])] == [
        "a",
        "b",
    ]
    shown = sluice("queues", "receive", topic, "-n", "10", "--accept")
    assert [line.split()[4:6] for line in shown.lines[1:3]] == [["a", "1"], ["b", "1"]]
    assert "2 records, locked for" in shown.lines[4] and shown.lines[5] == "2 settled."
    assert sluice("queues", "pause", topic).out == f"Queue {topic} is paused.\n"
    assert "paused" in sluice("queues", "list", topic).rows[0]
    assert sluice("queues", "seek", topic, "--to", "earliest").out.endswith("2 records available.\n")
    assert sluice("queues", "receive", topic).out.endswith("to deliver: paused.\n")
    assert sluice("queues", "resume", topic).out == f"Queue {topic} delivers again.\n"
    assert len(sluice("queues", "receive", topic, "-n", "10", "--json").json["records"]) == 2
    assert "leased" in sluice("queues", "seek", topic, "--to", "latest", code=1).err
    assert "either --to" in sluice("queues", "seek", topic, code=2).err


def test_dead_letters_are_listed_redriven_and_purged(sluice: Sluice, topic: str) -> None:
    filled(sluice, topic, "a", "b")
    sluice("queues", "create", topic, "-t", topic, "--from", "earliest", "--dead-letter", f"{topic}-dead")

    def reject() -> None:
        lease = sluice("queues", "receive", topic, "-n", "10", "--json").json["lease"]
        sluice("queues", "settle", topic, "-x", lease, "--reason", "broken")
        deadline = time.monotonic() + 60
        while sluice("queues", "stats", topic, "--json").json["archiving"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    reject()
    rows = sluice("queues", "dead-letters", topic).rows
    assert [row[2:6] for row in rows] == [["0", "rejected", "1", "broken"], ["1", "rejected", "1", "broken"]]
    redrive = ["queues", "redrive", topic]
    assert sluice(*redrive, "--dry-run").out == "2 records would be moved.\n"
    assert sluice(*redrive, "--cause", "limit").out == "0 records moved.\n"
    assert sluice(*redrive).out == "2 records moved.\n"
    assert sluice("queues", "dead-letters", topic).rows == []
    reject()
    assert (
        sluice("queues", "purge", topic, "--yes").out == f"The dead letters of queue {topic} are forgotten.\n"
    )
    assert sluice("queues", "dead-letters", topic, "--json").json == []
