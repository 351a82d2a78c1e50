"""Types as schemas: those that no library describes, their names and their examples."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType, field
from pydantic import BaseModel

from app.http.route import Lines
from app.openapi.schemas import Member, Schemas


class One(Struct):
    """One."""

    a: int

    EXAMPLES: ClassVar[list[Any]] = [{"a": 1}]


class Other(Struct):
    """Other."""

    one: One


class Model(BaseModel):
    """A model."""


class Query(Struct):
    """A query."""

    at: Annotated[str, Meta(description="When.")] = field(name="from")
    tags: Annotated[dict[str, str] | UnsetType, Meta(title="Tags", description="Some.")] = UNSET


def test_a_struct_is_a_component_under_the_prefix_of_its_surface() -> None:
    schemas = Schemas("V2")
    assert schemas.of(Other) == {"$ref": "#/components/schemas/V2Other"}
    assert {name: one["title"] for name, one in schemas.components.items()} == {
        "V2Other": "V2Other",
        "V2One": "V2One",
    }
    assert schemas.components["V2Other"]["properties"]["one"] == {"$ref": "#/components/schemas/V2One"}
    assert schemas.of(Model) == {"$ref": "#/components/schemas/Model"}


def test_bodies_that_are_not_json_are_strings() -> None:
    schemas = Schemas()
    assert schemas.of(bytes) == {"type": "string", "format": "binary"}
    assert schemas.of(Lines(One))["contentSchema"] == {"$ref": "#/components/schemas/One"}


def test_a_body_has_the_examples_of_its_types() -> None:
    schemas = Schemas()
    assert schemas.content(One)["example"] == {"a": 1}
    assert schemas.content(list[One])["example"] == [{"a": 1}]
    assert schemas.content(Lines(One))["example"] == '{"a": 1}\n'
    assert schemas.content(Annotated[One, Meta(examples=[{"a": 2}])])["example"] == {"a": 2}
    assert "example" not in schemas.content(Other)
    either = schemas.content(One | Annotated[str, Meta(examples=["x"])])
    assert len(either["schema"]["oneOf"]) == 2
    assert [one["value"] for one in either["examples"].values()] == [{"a": 1}, "x"]


def test_members_are_parameters_and_an_object_among_them_has_a_name() -> None:
    schemas = Schemas()
    at, tags = schemas.members(Query)
    assert at == Member("from", True, {"type": "string", "description": "When."})
    assert tags == Member("tags", False, {"$ref": "#/components/schemas/Tags", "description": "Some."})
    assert set(schemas.components) == {"Tags"}
