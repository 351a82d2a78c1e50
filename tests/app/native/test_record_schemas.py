"""The shapes of records, as JSON schemas."""

from __future__ import annotations

from app.native.record_schemas import RecordRead, RecordToWrite, schemas


def test_every_member_that_is_read_can_be_written() -> None:
    assert set(RecordRead.__struct_fields__) <= set(RecordToWrite.__struct_fields__)


def test_every_member_has_a_type_or_a_description() -> None:
    found = schemas()
    assert {"RecordToWrite", "RecordRead", "RecordPage", "RecordsWritten", "HeaderToWrite"} <= set(found)
    for schema in found.values():
        assert schema["description"]
        for member in schema["properties"].values():
            assert member


def test_what_is_written_refuses_other_members() -> None:
    assert schemas()["RecordToWrite"]["additionalProperties"] is False
