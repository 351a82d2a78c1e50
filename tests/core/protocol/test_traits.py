"""The table of what versions mean."""

from __future__ import annotations

from core.protocol import traits


def test_record_formats_follow_the_versions_of_produce_and_fetch() -> None:
    assert [traits.produce_magic(version) for version in (0, 1, 2, 3, 13)] == [0, 0, 1, 2, 2]
    assert [traits.fetch_magic(version) for version in (0, 1, 2, 3, 4, 18)] == [0, 0, 1, 1, 2, 2]


def test_topics_go_by_id_from_version_13_of_produce_and_fetch_alone() -> None:
    assert traits.names_topics_by_id(0, 13) and traits.names_topics_by_id(1, 13)
    assert not traits.names_topics_by_id(0, 12) and not traits.names_topics_by_id(3, 13)


def test_zstd_is_known_from_version_7_of_produce_and_10_of_fetch() -> None:
    assert [traits.knows_zstd(0, version) for version in (6, 7)] == [False, True]
    assert [traits.knows_zstd(1, version) for version in (9, 10)] == [False, True]


def test_answers_of_metadata_may_leave_names_out_from_version_12_on() -> None:
    assert [traits.metadata_may_leave_names_out(version) for version in (10, 11, 12)] == [False, False, True]
