"""The bodies of v2 as JSON schemas."""

from __future__ import annotations

import json

from app.rest_v2.schemas import CreateInstance, schemas


def test_every_schema_has_its_prefix_and_leads_to_others_of_it() -> None:
    found = schemas()
    assert all(name.startswith("V2") for name in found)
    assert {"V2ProduceRequest", "V2ProduceRecord", "V2ConsumerRecord", "V2ErrorMessage"} <= set(found)
    references = json.dumps(found).split('"$ref": "')[1:]
    assert {one.split('"')[0].removeprefix("#/components/schemas/") for one in references} <= set(found)


def test_options_have_the_names_of_the_wire() -> None:
    names = set(schemas()["V2CreateInstance"]["properties"])
    assert {
        "auto.offset.reset",
        "auto.commit.enable",
        "fetch.min.bytes",
        "consumer.request.timeout.ms",
    } <= names
    assert len(names) == len(CreateInstance.__struct_fields__)


def test_only_the_list_of_records_is_required_of_a_produce_request() -> None:
    assert schemas()["V2ProduceRequest"]["required"] == ["records"]
    assert schemas()["V2ProduceRecord"]["required"] == []
