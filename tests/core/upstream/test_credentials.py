"""The credentials and TLS files of a gateway change while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.upstream_settings import upstream_of
from core.client.settings import ClientSettings
from core.config import Config, Upstream
from core.gateway import Gateway, settings_of
from core.upstream.credentials import Credentials
from tests.tls import make_certificate
from tests.upstream.cluster import Cluster
from tests.virtual_time import LoopClock, run

FIRST, SECOND = "the first password", "the second password"


def written(file: Path, **properties: str) -> Upstream:
    """Write a file of properties and return the settings of a gateway with it."""
    lines = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    whole = file.with_suffix(".new")
    whole.write_text("bootstrap.servers=broker-1:9092\n" + "\n".join(lines))
    whole.chmod(0o600)
    os.replace(whole, file)
    found = upstream_of({}, (), str(file))
    assert found is not None
    return found


def logging_in(file: Path, password: str, mechanism: str = "PLAIN") -> Upstream:
    return written(
        file,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="gateway",
        sasl_password=password,
    )


@pytest.mark.parametrize("signal", [False, True])
def test_a_new_password_is_used_without_a_restart(tmp_path: Path, signal: bool) -> None:
    async def whole() -> None:
        file = tmp_path / "client.properties"
        async with Cluster.open(
            tmp_path / "cluster", LoopClock(), options=(("auth", "plain,scram-sha-256"),)
        ) as cluster:
            await cluster.broker.users.create("gateway", FIRST)
            upstream = logging_in(file, FIRST)
            config = Config(data_dir=tmp_path / "gateway", listeners=(), upstream=upstream)
            gateway = Gateway(config, LoopClock(), cluster)
            await gateway.start()
            await cluster.broker.users.set_password("gateway", SECOND)
            logging_in(file, SECOND)
            if signal:
                gateway.reload()
            else:
                await asyncio.sleep(61)
            cluster.disconnect()
            await asyncio.sleep(1)
            await gateway.broker.cluster.refresh()
            assert gateway.cluster_state().reachable
            await gateway.stop()

    run(whole())


def test_what_cannot_be_used_leaves_the_former_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file, used = tmp_path / "client.properties", []
    upstream = logging_in(file, FIRST)
    watched = Credentials(Config(), upstream, settings_of(upstream), settings_of, used.append)
    watched.check()
    assert not used
    for wrong in ({"sasl_mechanism": "PLAIN"}, {"security_protocol": "SSL"}, {"sasl_pasword": SECOND}):
        written(file, **wrong)
        caplog.clear()
        watched.check()
        watched.check()
        # Once, and without the password.
        assert len(caplog.records) == 1 and "are not used" in caplog.text and SECOND not in caplog.text
    file.unlink()
    watched.check()
    logging_in(file, SECOND, "SCRAM-SHA-256")
    watched.check()
    assert not used and "restart it" in caplog.text
    logging_in(file, SECOND)
    watched.check()
    assert [one.login.username for one in used] == ["gateway"]


def test_a_new_authority_is_used_for_connections_to_come(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (make_certificate(tmp_path / name) for name in ("first", "second"))
    authority = tmp_path / "ca.pem"
    authority.write_bytes(first.file.read_bytes())
    file = tmp_path / "client.properties"
    upstream = written(file, security_protocol="SSL", ssl_ca_location=str(authority))
    used: list[ClientSettings] = []
    watched = Credentials(
        replace(Config(), tls_check_interval_ms=1), upstream, settings_of(upstream), settings_of, used.append
    )
    authority.write_bytes(second.file.read_bytes())
    watched.check()
    (found,) = used
    assert found.tls is not None
    serials = {one["serialNumber"] for one in found.tls.get_ca_certs()}
    assert len(serials) == 1
    watched.check()
    assert len(used) == 1
