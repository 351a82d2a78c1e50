"""What the OpenAPI document says about merged reads, compared with the routes."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from app.native.streams import filters, merged
from app.openapi.merged import MergedPage, StreamedRecord, filter_parameters, paths, schemas
from core.config import Config
from tests.app.native.streams.test_merged import fill
from tests.app.native.test_records import T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPERATION = paths("", Config())["/topics/{topic}/records"]["get"]


async def test_every_parameter_of_the_route_is_described_and_no_other() -> None:
    described = {p["name"] for p in OPERATION["parameters"] if p["in"] == "query"}
    # The free names of headers are one parameter there.
    known = {"header_filter" if name == filters.HEADER + "*" else name for name in merged.PARAMETERS}
    assert described == known
    assert {p["name"] for p in filter_parameters()} <= described


async def test_every_media_type_is_described() -> None:
    described = set(OPERATION["responses"]["200"]["content"])
    assert {t.encode() for t in described} == {t for t in merged.OFFERED if t not in merged.OTHER_NAMES}


async def test_answers_are_as_their_schemas_say(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 2, 1)
    page = msgspec.json.decode((await http.get(f"{T}/{topic}/records")).content, type=MergedPage, strict=True)
    assert len(page.records) == 3
    url = f"{T}/{topic}/records?wait_ms=0"
    lines = (await http.get(url, headers={"accept": "application/x-ndjson"})).content.splitlines()
    assert [msgspec.json.decode(line, type=StreamedRecord).offset for line in lines] == [0, 1, 0]
    assert set(schemas()) >= {"MergedPage", "StreamedRecord", "RecordRead", "HeaderRead"}
