"""The table of what versions mean."""

from __future__ import annotations

from core.protocol import traits


def test_record_formats_follow_the_versions_of_produce_and_fetch() -> None:
    assert [traits.produce_magic(version) for version in (0, 1, 2, 3, 13)] == [0, 0, 1, 2, 2]
    assert [traits.fetch_magic(version) for version in (0, 1, 2, 3, 4, 18)] == [0, 0, 1, 1, 2, 2]


def test_topics_go_by_id_in_four_apis_from_a_version_on() -> None:
    first = {0: 13, 1: 13, 8: 10, 9: 10}
    for key, version in first.items():
        assert not traits.names_topics_by_id(key, version - 1)
        assert traits.names_topics_by_id(key, version)


def test_a_timestamp_has_a_meaning_from_a_version_on() -> None:
    known = {
        version: {t for t in range(-8, 2) if traits.list_offsets_knows(version, t)} for version in range(12)
    }
    assert known[1] == known[6] == {-2, -1, 0, 1}
    assert known[7] == {-3, *known[1]} and known[8] == {-4, *known[7]}
    assert known[9] == known[10] == {-5, *known[8]} and known[11] == {-6, *known[9]}


def test_zstd_is_known_from_version_7_of_produce_and_10_of_fetch() -> None:
    assert [traits.knows_zstd(0, version) for version in (6, 7)] == [False, True]
    assert [traits.knows_zstd(1, version) for version in (9, 10)] == [False, True]


def test_answers_of_metadata_may_leave_names_out_from_version_12_on() -> None:
    assert [traits.metadata_may_leave_names_out(version) for version in (10, 11, 12)] == [False, False, True]
