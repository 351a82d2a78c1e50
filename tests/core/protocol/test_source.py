"""Functions written by the program, and how their failures find the field."""

from __future__ import annotations

import pytest

from core.protocol.messages.metadata import MetadataRequestTopic
from core.protocol.schema import Kind
from core.protocol.source import Compiled, Part, Source, fixed_size, smallest


def compiled() -> Compiled:
    source = Source("def run(values):", {})
    ten = source.constant("c", 10)
    with source.field("items"):
        index = source.new("i")
        with source.block(f"for {index} in range(len(values)):"), source.field(f"items[{{{index}}}].number"):
            source.line(f"values[{index}] = {ten} // values[{index}]")
    source.line("return values")
    return source.finish("a sample")


def test_what_was_written_runs() -> None:
    assert compiled().run([1, 2, 5]) == [10, 5, 2]


def test_a_failure_names_the_field_with_its_index() -> None:
    function = compiled()
    with pytest.raises(ZeroDivisionError) as failure:
        function.run([1, 0])
    assert function.where(failure.value.__traceback__) == "items[1].number"


def test_a_failure_elsewhere_names_nothing() -> None:
    function = compiled()
    with pytest.raises(ZeroDivisionError) as failure:
        _ = 1 // 0
    assert function.where(failure.value.__traceback__) == ""


def test_the_smallest_element_bounds_a_count() -> None:
    assert fixed_size(Kind.INT64) == 8 and fixed_size(Kind.UUID) == 16 and fixed_size(Kind.STRING) is None
    assert smallest(Kind.STRING, None, 0, False) == 2
    assert smallest(Kind.BYTES, None, 0, False) == smallest(Kind.ARRAY, None, 0, False) == 4
    assert smallest(Kind.STRING, None, 9, True) == 1
    assert smallest(Kind.STRUCT, MetadataRequestTopic, 1, False) == 2  # a name
    assert smallest(Kind.STRUCT, MetadataRequestTopic, 9, True) == 2  # a name and a tag section
    assert smallest(Kind.STRUCT, MetadataRequestTopic, 12, True) == 18  # and a topic id


def test_a_part_whose_code_is_a_number_is_known_as_bytes() -> None:
    assert Part("x", "", "tags").constant == b"\0"
    assert Part("i", "-1", "name").constant == b"\xff\xff\xff\xff"
    assert Part("B", "0", "name").constant == b"\0"
    assert Part("i", "m.index", "index").constant is None
