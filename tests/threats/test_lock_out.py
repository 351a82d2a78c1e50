"""An administrator that deletes users: the broker stays closed, and the data directory opens it again."""

from __future__ import annotations

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import ErrorCode
from core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from core.security.acl import Operation, ResourceType
from core.security.principal import ANONYMOUS, Caller, Principal

from .conftest import ADMIN, World


async def test_the_deletion_of_the_last_user_opens_nothing(world: World) -> None:
    """It is the deletion that would make each client of a listener without `auth` an administrator."""
    await world.broker.users.delete(ADMIN)
    assert not world.broker.users
    anonymous = world.broker.guards.of(Caller(ANONYMOUS, "127.0.0.1"))
    assert anonymous.rights.enforced and not anonymous.rights.unlimited
    assert (await world.http(ADMIN, "GET", "/api/v1/topics")).status_code == 401


async def test_the_last_super_user_is_not_deleted_by_a_client(world: World) -> None:
    """By itself, and by another user that may change users but is no super user; over HTTP and Kafka's API 51."""
    await world.add("bob")
    await world.allow("bob", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    for user in (ADMIN, "bob"):
        refused = await world.http(user, "DELETE", f"/api/v1/users/{ADMIN}")
        assert refused.status_code == 403 and refused.json()["type"] == "/problems/policy-violation"
        assert "sluice users --data-dir" in refused.json()["detail"]
    client = await world.kafka("bob")
    # The user remains with its other mechanism, and is deleted with the last one.
    for mechanism, code in ((1, ErrorCode.NONE), (2, ErrorCode.POLICY_VIOLATION)):
        request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(ADMIN, mechanism)])
        answer = await client.ask(51, 0, request)
        assert [one.error_code for one in answer.results] == [code]
    assert ADMIN in world.broker.users
    assert (await world.http(ADMIN, "DELETE", "/api/v1/users/bob")).status_code == 204


async def test_another_super_user_may_delete_one(world: World) -> None:
    world.broker.authorizer.set_super_users({f"User:{ADMIN}", "User:root", "User:gone"})
    await world.add("root")
    assert (await world.http("root", "DELETE", f"/api/v1/users/{ADMIN}")).status_code == 204
    assert (await world.http("root", "DELETE", "/api/v1/users/root")).status_code == 403
    # A super user that is none of the users, such as a client with a certificate, remains.
    certified = world.broker.guards.of(Caller(Principal(name="gone"), "127.0.0.1"))
    await certified.users.delete("root")
    assert not world.broker.users


async def test_a_user_that_is_added_with_the_broker_stopped_gets_in(world: World) -> None:
    """What `sluice users --data-dir` does: the same store, no listener."""
    await world.broker.users.delete(ADMIN)
    await world.broker.close()
    config = Config(data_dir=world.broker.config.data_dir, scram_iterations=4096)
    offline = Broker(config, ManualClock())
    await offline.open()
    await offline.users.create(ADMIN, "another password")
    await offline.close()
    again = Broker(config, ManualClock())
    await again.open()
    assert await again.passwords.check(ADMIN, "another password", "") is not None
    assert again.authorizer.enabled and again.authorizer.unlimited(f"User:{ADMIN}")
    await again.close()
