"""README.md and docs/: sizes, links, anchors, and statements that the code can be asked about."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from app.commands.lazy import COMMANDS
from core.broker.broker_configs import DYNAMIC, FIXED
from core.topic_config import DEFINITIONS, STORED_ONLY
from tests.broker_process import ROOT
from tests.docs.examples import PAGES, SCENARIOS

README = ROOT / "README.md"
DOCS = ROOT / "docs"
README_BYTES = 12_000
_FENCE = re.compile(r"^(`{3,4})[^`].*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The text of a page without its fences."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [one or other for one, other in _LINK.findall(text)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as a forge makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 1
        made = slug
        while made in found:
            made, number = f"{slug}-{number}", number + 1
        found.add(made)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / unquote(path)).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in links(page):
            there = (page.parent / target.partition("#")[0]).resolve()
            if there.suffix == ".md" and there.is_file() and there.is_relative_to(DOCS):
                waiting.append(there)
    assert sorted(str(page.relative_to(ROOT)) for page in {*PAGES} - seen) == []


def test_the_readme_is_an_entrance() -> None:
    text = README.read_text()
    assert len(text.encode()) <= README_BYTES
    assert ".venv/bin/pip install . && .venv/bin/sluice\n" in text
    assert "python3 tests/run.py\n" in text
    assert 'sluice = "app.__main__:main"' in (ROOT / "pyproject.toml").read_text()


def test_the_map_names_what_is_there() -> None:
    tree = README.read_text().partition("## The map")[2]
    top = ""
    found = re.findall(r"^( *)([a-z0-9_]+)/ ", tree, re.MULTILINE)
    assert len(found) > 20
    for indent, name in found:
        top = name if not indent else top
        assert (ROOT / (name if not indent else f"{top}/{name}")).is_dir(), name


def test_the_settings_of_topics_are_those_of_the_code() -> None:
    text = (DOCS / "operations" / "configuration.md").read_text()
    rows = {
        name: set(re.findall(r"`([a-z0-9.]+)[`=]", text.split(f"| **{name}** |")[1].split("\n")[0]))
        for name in ("have an effect", "are stored only", "refused")
    }
    assert rows["refused"] == {"remote.storage.enable"}
    assert rows["are stored only"] == STORED_ONLY - rows["refused"]
    assert rows["have an effect"] == DEFINITIONS.keys() - STORED_ONLY
    shown = int(re.findall(r"show (\d+) settings that have an equivalent", text)[0])
    assert shown == len(DYNAMIC) + len(FIXED)


def test_every_command_has_an_example_that_runs() -> None:
    text = "".join(block.text for block in SCENARIOS["cli"])
    for name in COMMANDS:
        assert f"sluice {name} " in text, name
