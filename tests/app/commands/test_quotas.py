"""`sluice quotas` against a broker."""

from __future__ import annotations

import json

from tests.app.commands.running import Sluice


def test_quotas_are_set_listed_and_deleted(sluice: Sluice) -> None:
    assert "user alice, default client-id set" in sluice(
        "quotas", "set", "--of-user", "alice", "--default-client-id", "producer_byte_rate=1e6",
        "request_percentage=12.5",
    ).out  # fmt: skip
    sluice("quotas", "set", "--ip", "10.9.8.7", "connection_creation_rate=5")
    listed = sluice("quotas", "list").out
    assert "user alice, default client-id" in listed and "1000000" in listed and "12.5" in listed
    items = json.loads(sluice("quotas", "list", "--json").out)
    assert [len(one["entity"]) for one in items] == [1, 2]
    assert "exclude" in sluice(
        "quotas", "set", "--of-user", "a", "--default-user", "producer_byte_rate=1", code=2
    ).err  # fmt: skip
    assert "Name the entity" in sluice("quotas", "delete", "--yes", code=2).err
    assert "KEY=NUMBER" in sluice("quotas", "set", "--of-user", "a", "producer_byte_rate", code=2).err
    assert "bytes" in sluice("quotas", "set", "--of-user", "a", "bytes=1", code=1).err
    assert "deleted" in sluice("quotas", "delete", "--of-user", "alice", "--default-client-id", "--yes").out
    assert "no quotas" in sluice("quotas", "delete", "--of-user", "alice", "--yes", code=1).err
    assert json.loads(sluice("quotas", "delete", "--ip", "10.9.8.7", "--yes", "--json").out)["deleted"]
