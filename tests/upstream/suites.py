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
    "tests/app/native/test_consumers.py::test_a_fenced_consumer_says_so": "a gateway learns that a member is fenced "
    "from the answer to its next heartbeat, 3 s later at most (tests/core/upstream/test_consumers.py)",
    "tests/app/native/test_groups.py::test_a_stable_group_shows_the_partitions_of_each_member": "DescribeGroups "
    "tells neither the leader nor the generation of a classic group",
}


def modes(file: str, test: str) -> list[str]:
    """Return the modes in which a test runs: "embedded", "upstream"."""
    if file not in FILES or f"{file}::{test}" in EMBEDDED:
        return ["embedded"]
    return ["embedded", "upstream"]
