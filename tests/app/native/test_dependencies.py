"""What routes are handed."""

from __future__ import annotations

import httpx
import pytest

from app.fastapi_app import make_fastapi
from app.main import Application

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_gateway_hands_out_the_broker_of_this_application(app: Application) -> None:
    assert app.shared.current_broker() is app.server.broker
    assert make_fastapi(app.shared).state.shared is app.shared
    assert [e.scheme for e in app.shared.endpoints] == ["kafka"]


@pytest.mark.parametrize(
    ("query", "parameter"), [("dry_ran=true", "dry_ran"), ("dry_run=1&dry_run=0", "dry_run"), ("=", "")]
)
async def test_a_parameter_that_is_misspelt_or_doubled_is_refused(
    http: httpx.AsyncClient, query: str, parameter: str
) -> None:
    got = await http.post(f"/api/v1/topics/t:truncate?{query}", json={"partitions": [{"partition": 0}]})
    assert got.status_code == 422
    assert got.json()["errors"][0]["parameter"] == parameter


async def test_parameters_of_health_checks_are_nobodys_business(http: httpx.AsyncClient) -> None:
    assert (await http.get("/readyz?verbose")).status_code == 200
