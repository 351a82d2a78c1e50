"""The table of the native surface: its rows say what the handlers do."""

from __future__ import annotations

import inspect
from types import UnionType
from typing import Any, get_args, get_type_hints

import httpx
import msgspec
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.formats import Reader
from app.http.route import Body, Reply, Route
from app.main import Application
from app.native import routes
from app.native.fastapi_routes import add_routes
from app.native.operations import Operations
from app.native.record_schemas import (
    MergedPage,
    MergedQuery,
    ReadQuery,
    RecordRead,
    RecordToWrite,
    StreamedRecord,
)
from app.native.streams import merged
from core.config import Config
from tests.app.native.streams.test_merged import fill
from tests.app.native.test_records import T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
FASTAPI = [*routes.control_routes(), *routes.problem_routes()]
CONTROL = [pytest.param(one, id=one.name) for one in FASTAPI]


@pytest.fixture
def lean(app: Application) -> list[Route[Any]]:
    broker = app.shared.current_broker
    operations = Operations(broker, app.shared.acting, lambda: None, app.metrics.scrape)
    lean = routes.lean_routes(app.shared.config, app.shared.acting, app.shared.long_transactions)
    return [*lean, *routes.operation_routes(operations)]


async def test_no_name_and_no_path_is_there_more_than_once(lean: list[Route[Any]]) -> None:
    rows = [*lean, *FASTAPI]
    assert len({row.name for row in rows}) == len({(row.method, row.path) for row in rows}) == len(rows) > 40
    assert all(inspect.getdoc(row.handle) and row.summary and row.tag and row.answers for row in rows)


async def test_a_lean_row_knows_the_other_methods_of_its_path(lean: list[Route[Any]]) -> None:
    for row in lean:
        assert set(row.beside) == {one.method for one in FASTAPI if one.path == row.path}, row.name


@pytest.mark.parametrize("row", CONTROL)
async def test_a_row_names_the_type_that_its_handler_takes(row: Route[Any]) -> None:
    router = APIRouter()
    add_routes(router, [row])
    (route,) = router.routes
    assert isinstance(route, APIRoute)
    taken: Any = None if route.body_field is None else route.body_field.field_info.annotation
    if not isinstance(row.request, Body):
        assert taken is row.request
        return
    assert row.request.optional and isinstance(taken, UnionType)
    assert get_args(taken) == (row.request.media["application/json"], type(None))


@pytest.mark.parametrize("row", CONTROL)
async def test_a_row_names_the_type_that_its_handler_answers(row: Route[Any]) -> None:
    shapes = {one.shape if isinstance(one, Reply) else one for one in row.answers.values()} - {None}
    told = get_type_hints(row.handle)["return"]
    told = set(get_args(told)) if isinstance(told, UnionType) else {told}
    models = {one for one in told if isinstance(one, type) and issubclass(one, BaseModel)}
    assert models == {one for one in shapes if issubclass(one, BaseModel)}


async def test_every_route_that_is_served_by_fastapi_is_a_row(app: Application) -> None:
    from app.fastapi_app import make_fastapi

    rows = {(row.method, (routes.PREFIX + row.path).removesuffix("/")) for row in routes.control_routes()}
    rows |= {(row.method, row.path) for row in routes.problem_routes()}
    served = {
        (method, route.path)
        for route in make_fastapi(app.shared).routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }
    assert served == rows


async def test_the_limits_are_those_of_the_settings() -> None:
    config = Config()
    described = msgspec.json.schema(ReadQuery)["$defs"]["ReadQuery"]["properties"]
    bounds = {name: described["limit"][name] for name in ("minimum", "maximum", "default")}
    assert bounds == {"minimum": 1, "maximum": config.http_max_limit, "default": config.http_default_limit}
    assert described["wait_ms"]["maximum"] == config.max_wait_ms
    assert set(described["encoding"]["enum"]) == set(Reader.NAMES)


async def test_every_member_that_is_read_can_be_written() -> None:
    assert set(RecordRead.__struct_fields__) <= set(RecordToWrite.__struct_fields__)


async def test_every_media_type_of_a_merged_read_is_described(lean: list[Route[Any]]) -> None:
    (row,) = (row for row in lean if row.query is MergedQuery)
    reply = row.answers[200]
    assert isinstance(reply, Reply)
    described = {"application/json", *reply.media}
    assert {name.encode() for name in described} == {t for t in merged.OFFERED if t not in merged.OTHER_NAMES}


async def test_answers_of_merged_reads_are_as_their_types_say(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 2, 1)
    page = msgspec.json.decode((await http.get(f"{T}/{topic}/records")).content, type=MergedPage, strict=True)
    assert len(page.records) == 3
    url = f"{T}/{topic}/records?wait_ms=0"
    lines = (await http.get(url, headers={"accept": "application/x-ndjson"})).content.splitlines()
    assert [msgspec.json.decode(line, type=StreamedRecord).offset for line in lines] == [0, 1, 0]


async def test_a_request_to_fastapi_is_counted_under_the_path_of_its_row(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await http.get(f"{T}/{topic}")
    assert ("GET", "/api/v1/topics/{topic}", 404) in app.traffic.meters
