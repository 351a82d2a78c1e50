"""The lean routes in the OpenAPI document."""

from __future__ import annotations

from app.formats import Reader
from app.openapi.records import paths, schemas
from core.config import Config

CONFIG = Config()


def test_the_limits_are_those_of_the_settings() -> None:
    read = paths("/p", CONFIG)["/p/topics/{topic}/partitions/{partition}/records"]["get"]
    bounds = {p["name"]: p["schema"] for p in read["parameters"]}
    assert bounds["limit"] == {
        "type": "integer", "minimum": 1, "maximum": CONFIG.http_max_limit, "default": CONFIG.http_default_limit,
    }  # fmt: skip
    assert bounds["wait_ms"]["maximum"] == CONFIG.max_wait_ms
    assert bounds["encoding"]["enum"] == list(Reader.NAMES)


def test_a_list_of_records_is_not_empty() -> None:
    assert schemas()["RecordsToWrite"]["properties"]["records"]["minItems"] == 1
