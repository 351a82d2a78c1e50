"""Which HTTP tests run over a gateway as well, and which of them cannot, each with the reason.

A test of a file in `FILES` that uses the application runs a second time in upstream mode (tests/app/conftest.py). A
test in `EMBEDDED` does not: it asks for what a cluster does not have, or it looks inside of the embedded broker.
"""

from __future__ import annotations

FILES = (
    "tests/app/native/test_cluster.py",
    "tests/app/native/test_consumers.py",
    "tests/app/native/test_groups.py",
    "tests/app/native/test_idempotency.py",
    "tests/app/native/test_long_polls.py",
    "tests/app/native/test_members.py",
    "tests/app/native/test_one_record.py",
    "tests/app/native/test_produce_lines.py",
    "tests/app/native/test_read_committed.py",
    "tests/app/native/test_records.py",
    "tests/app/native/test_routes.py",
    "tests/app/native/test_topics.py",
    "tests/app/native/streams/test_events.py",
    "tests/app/native/streams/test_merged.py",
    "tests/app/native/streams/test_merged_offsets.py",
    "tests/app/native/streams/test_resume.py",
    "tests/app/rest_v2/test_consumers.py",
    "tests/app/rest_v2/test_karapace.py",
    "tests/app/rest_v2/test_offsets.py",
    "tests/app/rest_v2/test_produce.py",
    "tests/app/rest_v2/test_records.py",
    "tests/app/rest_v2/test_surface.py",
    "tests/app/rest_v2/test_topics.py",
)

#: A test, as `file::name` → why it does not run over a gateway.
EMBEDDED: dict[str, str] = {
    "tests/app/native/test_cluster.py::test_the_cluster_names_its_kafka_address":
        "A gateway has no Kafka listener: GET /brokers names those of the cluster (tests/peers/test_upstream.py).",
    "tests/app/native/test_cluster.py::test_the_versions_of_the_kafka_listener_are_told_over_http":
        "A gateway has no Kafka listener, so that there are no versions of one.",
    "tests/app/native/test_consumers.py::test_two_consumers_share_the_partitions":
        "A cluster shows the client id of the gateway for each member, not the consumer's name.",
    "tests/app/native/test_groups.py::test_a_group_comes_to_be_with_its_first_position":
        "OffsetFetch does not say when an offset was committed.",
    "tests/app/native/test_groups.py::test_a_stable_group_shows_the_partitions_of_each_member":
        "DescribeGroups does not name the leader of a group.",
    "tests/app/native/test_topics.py::test_put_creates_a_topic_once":
        "Sizes of partitions are null over a cluster.",
    "tests/app/native/test_topics.py::test_get_shows_the_bounds_of_each_partition":
        "Sizes of partitions are null over a cluster.",
    "tests/app/native/test_topics.py::test_patch_does_all_or_nothing":
        "The version of a topic is a digest of its partitions and settings, not a count of its changes.",
    "tests/app/native/test_consumers.py::test_a_fenced_consumer_says_so":
        "A consumer over a cluster learns from its next heartbeat that it is fenced; until then a poll repeats.",
}  # fmt: skip


def modes(file: str, test: str) -> list[str]:
    """Return the modes in which a test runs: "embedded", "upstream"."""
    if file not in FILES or f"{file}::{test}" in EMBEDDED:
        return ["embedded"]
    return ["embedded", "upstream"]
