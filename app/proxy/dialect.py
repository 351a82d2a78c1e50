"""Where the four proxies that share the v2 wire format differ.

The paths, bodies and most codes are the same in Confluent's REST Proxy, Karapace, Strimzi's bridge and Redpanda's
HTTP proxy. What is not stands here as data; no route asks which dialect is spoken.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to speak v2.

    `commit_adds` 1: the offset in a commit is that of the last record dealt with, and the next one is stored.
    `json_format` is the embedded format of records whose media type is `application/json`.
    `codes` replaces error codes, (Confluent's, its own); with `plain_codes` the error code is the HTTP status.
    `record_codes` are the codes of one refused record: for good, and where trying again may help.
    """

    name: str
    commit_adds: int = 1
    commit_status: int = 200
    commit_body: bytes = b"[]"
    poll_wait_ms: int = 1_000
    not_assigned_status: int = 409
    not_assigned_code: int = 40903
    offset_reset: str = "latest"
    auto_commit: bool = True
    json_format: str = "json"
    header_name: str = "name"
    codes: tuple[tuple[int, int], ...] = ()
    plain_codes: bool = False
    record_codes: tuple[int, int] = (50002, 50003)

    def code(self, error_code: int, status: int) -> int:
        """What stands in `error_code` for a code of Confluent's."""
        return status if self.plain_codes else dict(self.codes).get(error_code, error_code)


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("confluent"),
        Dialect(
            "karapace",
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=11_000,
            offset_reset="earliest",
            json_format="binary",
            codes=((40901, 40903), (42203, 42205)),
            record_codes=(1, 2),
        ),
        Dialect(
            "strimzi",
            commit_adds=0,
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=100,
            not_assigned_status=404,
            not_assigned_code=404,
            header_name="key",
            plain_codes=True,
            record_codes=(500, 503),
        ),
        Dialect(
            "redpanda",
            commit_adds=0,
            commit_status=204,
            commit_body=b"",
            poll_wait_ms=100,
            offset_reset="earliest",
            auto_commit=False,
        ),
    )
}
