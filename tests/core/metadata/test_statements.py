"""The registry of statements: what logs have stays, and another broker can have nothing else executed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.metadata import statements
from core.metadata.changelog import (
    WHOLE,
    RefusedChangeError,
    decode_changes,
    encode_changes,
    is_whole,
)
from core.metadata.statements import (
    OFFSETS_AT_ONCE,
    STATEMENTS,
    UnknownStatementError,
    put_offsets_text,
    sql,
)

# The texts that metadata logs have, by their names. A line may be added here, and none may change.
RECORDED = Path(__file__).parent / "statements.json"
PACKAGE = Path(statements.__file__).parent
# Statements that go to no other broker.
OWN = {
    "INSERT OR REPLACE INTO settings (name, value) VALUES (:name, :value)",
    "INSERT INTO alembic_version (version_num) VALUES (:revision)",
    'DELETE FROM "',
}
FOREIGN = [
    "INSERT INTO users (name, created_ms) VALUES (?, ?)",
    "INSERT OR IGNORE INTO users (name, created_ms) VALUES (?, ?) ",
    "CREATE TRIGGER t AFTER INSERT ON topics BEGIN DELETE FROM acls; END",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO settings SELECT x, ? FROM n",
    "ATTACH DATABASE ? AS other",
    "PRAGMA writable_schema = ?",
    "DROP TABLE acls",
    "users.put/1",
]


def texts(*changes: tuple[str, list[list[Any]]]) -> bytes:
    """Changes as older logs have them."""
    return msgspec.msgpack.encode(changes)


def named(*changes: tuple[str, list[list[Any]]], version: int = 1) -> bytes:
    return msgspec.msgpack.encode((version, changes))


def test_statements_that_logs_have_do_not_change() -> None:
    recorded = json.loads(RECORDED.read_text())
    found = {name: one.text for name, one in STATEMENTS.items()}
    assert {name: found.get(name) for name in recorded} == recorded, "give a changed statement a new number"
    assert sorted(found) == sorted(recorded), f"add the new statements to {RECORDED.name}"


def test_no_other_module_has_a_statement_that_changes_the_database() -> None:
    """A statement outside of the registry fails in a cluster, where transactions are names."""
    found = []
    for path in PACKAGE.glob("*.py"):
        if path.name != "statements.py":
            constants = [
                node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            ]
            words = [node.value for node in constants if isinstance(node.value, str)]
            found += [
                (path.name, text)
                for text in words
                if text.startswith(("INSERT ", "UPDATE ", "DELETE ", "REPLACE ")) and text not in OWN
            ]
    assert found == []


@pytest.mark.parametrize("statement", FOREIGN, ids=lambda text: text[:20])
def test_a_foreign_statement_is_refused_in_either_form(statement: str) -> None:
    for rows in ([[]], [["x"]], [["mallory", 1]], []):
        with pytest.raises(RefusedChangeError, match="There is no such statement"):
            decode_changes(texts((statement, rows)))
    if statement not in STATEMENTS:
        with pytest.raises(RefusedChangeError, match="There is no statement"):
            decode_changes(named((statement, [["mallory", 1]])))


def test_one_foreign_statement_refuses_the_whole_transaction() -> None:
    with pytest.raises(RefusedChangeError):
        decode_changes(named(("users.put/1", [["alice", 1]]), ("users.promote/1", [["alice"]])))


@pytest.mark.parametrize("row", [[], ["a"], ["a", 1, 2], ["a", 1, "b", 2]], ids=len)
def test_a_wrong_number_of_arguments_is_refused(row: list[Any]) -> None:
    with pytest.raises(RefusedChangeError, match="has 2 arguments"):
        decode_changes(named(("users.put/1", [["alice", 1], row])))
    with pytest.raises(RefusedChangeError, match="has 2 arguments"):
        decode_changes(texts((sql("users.put/1"), [["alice", 1], row])))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92",
        b"\xc1",
        named(("users.put/1", [["alice", {"a": 1}]])),
        named(("users.put/1", [["alice", [1]]])),
        msgspec.msgpack.encode((1, [("users.put/1",)])),
        msgspec.msgpack.encode((1, "users.put/1")),
    ],
    ids=range(7),
)
def test_what_is_no_transaction_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedChangeError):
        decode_changes(data)


def test_a_transaction_of_a_later_format_is_refused() -> None:
    with pytest.raises(RefusedChangeError, match="format 2, which belongs to a later release"):
        decode_changes(named(("users.put/1", [["alice", 1]]), version=2))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("settings.put/1", ["local.metadata.applied", "9"]),
        ("settings.copy/1", ["local.advertised.2", "mallory 9092"]),
        ("settings.delete/1", ["local.leader.epoch"]),
        ("settings.put/1", [b"local.x", "9"]),
    ],
)
def test_a_setting_of_one_broker_is_not_changed_by_another(name: str, row: list[Any]) -> None:
    with pytest.raises(RefusedChangeError, match="may not change"):
        decode_changes(named((name, [row])))
    with pytest.raises(UnknownStatementError):
        encode_changes([(sql(name), [row])])


def test_a_statement_that_is_not_in_the_registry_is_not_sent() -> None:
    with pytest.raises(UnknownStatementError, match="There is no such statement"):
        encode_changes([("DELETE FROM users", [[]])])


def test_all_statements_survive_encoding_and_carry_no_sql() -> None:
    changes = [(one.text, [["a"] * one.arguments]) for one in STATEMENTS.values()]
    data = encode_changes(changes)
    assert decode_changes(data) == changes
    assert b"INSERT" not in data and b"DELETE" not in data and b"UPDATE" not in data


@pytest.mark.parametrize("count", [1, 2, OFFSETS_AT_ONCE])
def test_many_offsets_in_one_statement_are_single_rows_for_the_others(count: int) -> None:
    rows = [["g", "t", number, 5, -1, "", 0, -1] for number in range(count)]
    flat = [value for row in rows for value in row]
    text = sql("committed_offsets.put/1")
    for data in (
        encode_changes([(put_offsets_text(count), [flat])]),
        texts((put_offsets_text(count), [flat])),
    ):
        assert decode_changes(data) == [(text, rows)]


def test_a_whole_database_is_told_by_its_first_bytes() -> None:
    rows = [["name", "value"]]
    for count in (0, 1, 20, 70_000):
        whole = encode_changes([(WHOLE, [[]]), *[(sql("settings.put/1"), rows)] * count])
        assert is_whole(whole)
        assert not is_whole(encode_changes([(sql("settings.put/1"), rows)] * (count + 1)))
    assert decode_changes(texts((WHOLE, [[]]), (sql("users.copy/1"), [["alice", 1]]))) == [
        (WHOLE, [[]]),
        (sql("users.copy/1"), [["alice", 1]]),
    ]
