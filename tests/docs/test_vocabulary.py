"""The words that docs/contributing/vocabulary.md rules out occur neither in the documentation nor in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.broker_process import ROOT
from tests.docs.code_prose import FOLDERS, files, flat, name_words, names_of, prose_of
from tests.docs.examples import PAGES
from tests.docs.test_pages import prose

VOCABULARY = ROOT / "docs" / "contributing" / "vocabulary.md"
_, _, _RULES = VOCABULARY.read_text().partition("## Words we do not use")
_WORDS_SECTION, _, _NAMES_SECTION = _RULES.partition("## Names we do not use")
# The words are in the first column.
WORDS = [
    word
    for row in re.findall(r"^\| (`.*?) \|", _WORDS_SECTION, re.MULTILINE)
    for word in re.findall(r"`([^`]+)`", row)
]
NAMES = [name.split("_") for name in re.findall(r"`(\w+)`", _NAMES_SECTION)]
_PATTERNS = "|".join(r"\s+".join(word.split()) for word in WORDS)
_REFUSED = re.compile(rf"\b(?:{_PATTERNS})\b", re.IGNORECASE)
_REFUSED_NAME = re.compile(r"\b(?:" + "|".join(" ?".join(name) for name in NAMES) + r")\b", re.IGNORECASE)
# The page that lists the words, and the test that compares with them.
SELF = {"docs/contributing/vocabulary.md", "tests/docs/test_vocabulary.py", "tests/docs/code_prose.py"}

_LABEL = "a label of metrics, which dashboards use"
# (path, what is found there): the reason why the word is right. An entry that nothing needs fails the test.
ALLOWED: dict[tuple[str, str], str] = {
    ("docs/reference/metrics.md", "| door |"): _LABEL,
    ("tests/peers/recorded_groups.py", "two: first goes on"): "the name of a case in a recording",
    ("tests/pipeline/jobs/test_export.py", '"who": {"city"'): "a column of test data",
    ("tests/pipeline/jobs/test_export.py", "who STRUCT"): "a column of test data",
}
_SETTING = "a setting's name, which users have in their files"
# Identifiers that stay, each with its reason.
ALLOWED_NAMES: dict[str, str] = {
    "door": _LABEL,
    "legacy_fetch_max_bytes": _SETTING,
    "legacy_slice_bytes": _SETTING,
    "legacy_threads": _SETTING,
    "LegacyRecordBatchBuilder": "a class of aiokafka",
    "legacy_records": "a module of aiokafka",
}


def found_in(text: str) -> list[tuple[int, str]]:
    """Return (line, words around it) of each word of a text that is ruled out; lines count from 0."""
    plain = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)
    return [
        (
            plain.count("\n", 0, match.start()),
            " ".join(plain[max(0, match.start() - 30) : match.end() + 20].split()),
        )
        for match in _REFUSED.finditer(plain)
    ]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _allowed(path: str, words: str) -> bool:
    return any(path == allowed and part in words for allowed, part in ALLOWED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_vocabulary(page: Path) -> None:
    # Help is in fences on the generated pages.
    generated = "docs/reference/" in page.as_posix()
    found = [words for _, words in found_in(page.read_text() if generated else prose(page))]
    name = _name(page)
    assert name in SELF or [words for words in found if not _allowed(name, words)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_code_uses_the_words_of_the_vocabulary(folder: str) -> None:
    found = [
        f"{_name(file)}:{first + line}: {words}"
        for file in files(folder)
        if _name(file) not in SELF and _REFUSED.search(flat(file))
        for first, text in prose_of(file)
        for line, words in found_in(text)
        if not _allowed(_name(file), words)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_name_of_the_code_uses_the_words_of_the_vocabulary(folder: str) -> None:
    found = {
        f"{_name(file)}:{line}: {name}"
        for file in files(folder)
        if file.suffix == ".py" and _REFUSED_NAME.search(flat(file))
        for line, name in names_of(file)
        if name not in ALLOWED_NAMES and _is_refused(name)
    }
    assert sorted(found) == []


def _is_refused(name: str) -> bool:
    words = name_words(name)
    return any(
        words[start : start + len(one)] == one for one in NAMES for start in range(len(words) - len(one) + 1)
    )


def test_every_exception_is_needed() -> None:
    texts = {path: " ".join(words for _, words in found_in((ROOT / path).read_text())) for path, _ in ALLOWED}
    assert [key for key in ALLOWED if key[1] not in texts[key[0]]] == []
    sources = [file.read_text() for folder in FOLDERS for file in files(folder) if file.suffix == ".py"]
    assert [name for name in ALLOWED_NAMES if not any(name in source for source in sources)] == []


def test_a_phrase_is_found_wherever_it_is_written(tmp_path: Path) -> None:
    """`flat` decides which files are read closely, so it must not miss what `prose_of` would show."""
    file = tmp_path / "code.py"
    for source in (
        "# A log that goes\n# on.\n",
        'def one() -> None:\n    """A log that goes\n    on."""\n',
        'MESSAGE = (\n    "a log goes "\n    f"on at {1}"\n)\n',
        "def test_a_log_goes_on() -> None: ...\n",
        "class LogGoesOn: ...\n",
    ):
        file.write_text(source)
        assert _REFUSED.search(flat(file)), source
        assert any(found_in(text) for _, text in prose_of(file)), source
    file.write_text("goes = 1  # a variable\n")
    assert not any(found_in(text) for _, text in prose_of(file))
    file.write_text("class OldSets: ...\n")
    assert _REFUSED_NAME.search(flat(file))


def test_the_lists_of_the_page_are_read() -> None:
    assert {"nobody", "who", "goes on", "door"} <= set(WORDS)
    assert all(found_in(f"It is {word} here.") for word in WORDS)
    assert found_in("It is over after that. No client waits.") == []
    assert found_in("test nobody waits") and _is_refused("OLD_SETS") and not _is_refused("tp")
