"""An administrator that deletes users: the broker stays closed, and the data directory opens it again."""

from __future__ import annotations

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.security.principal import ANONYMOUS, Caller

from .conftest import ADMIN, World


async def test_the_deletion_of_the_last_user_opens_nothing(world: World) -> None:
    """It is the deletion that would make each client of a listener without `auth` an administrator."""
    assert (await world.http(ADMIN, "DELETE", f"/api/v1/users/{ADMIN}")).status_code == 204
    assert not world.broker.users
    anonymous = world.broker.guards.of(Caller(ANONYMOUS, "127.0.0.1"))
    assert anonymous.rights.enforced and not anonymous.rights.unlimited
    assert (await world.http(ADMIN, "GET", "/api/v1/topics")).status_code == 401


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
