"""The words that docs/contributing/vocabulary.md rules out do not occur in README.md and docs/."""

from __future__ import annotations

import re

import pytest

from tests.broker_process import ROOT
from tests.docs.examples import PAGES
from tests.docs.test_pages import prose

VOCABULARY = ROOT / "docs" / "contributing" / "vocabulary.md"
NOT = (
    r"nobody", r"somebody", r"everybody", r"anybody", r"whoever", r"anew", r"behind", r"goes", r"(?:is|are) gone",
    r"hears?", r"of old", r"stands? for", r"doors?", r"rooms?", r"so many", r"be it",
)  # fmt: skip
# Pages with words of the code's own texts (help, errors, OpenAPI), and the number of such words that are left.
# The numbers may only shrink: mend the text in the code, then `sluice docs`.
LEFT = {
    "docs/reference/cli.md": 11, "docs/reference/errors.md": 1, "docs/reference/http-api.md": 4,
    "docs/reference/metrics.md": 5, "docs/reference/settings.md": 0, "docs/reference/topic-settings.md": 6,
    "docs/reference/jobs.md": 0,
}  # fmt: skip


def found_in(text: str) -> list[str]:
    """The words of a text that are ruled out, with the words around them."""
    plain = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)
    pattern = rf".{{0,30}}\b(?:{'|'.join(NOT)})\b.{{0,20}}"
    return re.findall(pattern, plain, re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_vocabulary(page: object) -> None:
    assert isinstance(page, type(VOCABULARY))
    # Help stands in fences on the generated pages.
    generated = "docs/reference/" in page.as_posix()
    found = found_in(page.read_text() if generated else prose(page))
    name = str(page.relative_to(ROOT))
    assert len(found) <= LEFT.get(name, 0), found


def test_the_vocabulary_lists_what_is_checked() -> None:
    text = VOCABULARY.read_text().partition("## Words we do not use")[2]
    listed = re.findall(r"`([^`]+)`", text)
    assert listed and all(found_in(word) for word in listed), listed
    for pattern in NOT:
        assert any(re.search(pattern, word) for word in listed), pattern
