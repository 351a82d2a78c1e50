"""The documentation as a site: Sphinx builds it without a warning, with every page in its table of contents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import ROOT
from tests.docs.examples import PAGES

DOCS = ROOT / "docs"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a warning fails the build."""
    target = tmp_path_factory.mktemp("site")
    options = ("-W", "--keep-going", "-q", "-d", str(target / "doctrees"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(target / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


def test_every_page_is_in_the_contents(site: Path) -> None:
    text = (site / "index.html").read_text()
    listed = set(re.findall(r'class="toctree-l1"><a class="reference internal" href="([^"#]+)\.html"', text))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES if page.is_relative_to(DOCS)}
    assert listed == pages - {"README"}


def test_links_between_pages_and_out_of_the_documentation(site: Path) -> None:
    text = (site / "quickstart.html").read_text()
    assert 'href="operations/durability.html"' in text
    assert "python3 -m venv .venv" in text
    # A site has no sources: their names are left, without links and without copies.
    assert not list(site.rglob("_downloads/**/*.py"))
