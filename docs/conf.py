"""What Sphinx needs to make a site of this documentation: `sphinx-build docs DIRECTORY`.

The pages are plain Markdown for a forge, without a directive. The table of contents is added here, while the first
page is read; links that lead out of `docs/` become plain text, for a site has no sources.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

project = "Sluice"
author = "the authors of Sluice"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
# A fence without a language is a command or an output.
highlight_language = "none"
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px"}
html_copy_source = False
# `[text](page.md#heading)` as a forge has it.
myst_heading_anchors = 6

DOCS = Path(__file__).resolve().parent
SECTIONS = {
    "Start here": ["quickstart", "start/*", "limits", "comparison"],
    "Guides": ["guides/*"],
    "Operations": ["operations/*"],
    "Reference": ["reference/*"],
    "Spark": ["spark/*", "spark/jobs/README", "spark/jobs/*"],
    "Design": ["design/README", "design/*"],
    "Proof": ["proof/README", "proof/*"],
    "Contributing": ["contributing/*", "CHANGELOG"],
}


class LinksOut(SphinxTransform):
    """Replaces links to files outside `docs/` by their text."""

    # Before Sphinx copies what it would offer for download.
    default_priority = 5

    def apply(self, **_: object) -> None:
        """Look at each link that Markdown made of a path."""
        here = Path(self.env.doc2path(self.env.docname)).parent
        for node in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            path = str(node.get("reftarget", "")).partition("#")[0]
            target = Path(os.path.normpath(here / path))
            if path and not target.is_relative_to(DOCS):
                node.replace_self(nodes.inline("", "", *node.children))


def add_contents(_: Sphinx, name: str, source: list[str]) -> None:
    """Add the table of contents of all pages to the first one."""
    if name != root_doc:
        return
    for caption, pages in SECTIONS.items():
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages, "```", ""]
        )


def add_index(app: Sphinx, failure: Exception | None) -> None:
    """Make the first page the one that a server shows for the directory."""
    if failure is None:
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Register these with Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_index)
    app.add_transform(LinksOut)
