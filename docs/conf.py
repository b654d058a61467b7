"""Builds the site from the same Markdown pages that a code host shows.

`make docs` runs it with warnings as errors. No page needs the network, and none needs a server.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tenure

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "tenure"
author = "tenure contributors"
copyright = "tenure contributors"  # noqa: A001 - Sphinx wants this name
version = release = tenure.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"tenure {release}"
html_show_sourcelink = False
html_static_path: list[str] = []

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "smartquotes"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
# A name in single backticks is a link where the reference has it, and plain code where not.
default_role = "py:obj"
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    # Of the standard library, whose index would have to be fetched.
    ("py:(class|exc)", r"(collections\.abc\.|datetime\.|enum\.|typing\.)?[A-Z]\w*|(datetime\.)?(datetime|timedelta)"),
    ("py:class", r"tenure\.outcomes\.T"),  # a type variable
]

TWINS = {
    "project/readme": ROOT / "README.md",
    "project/architecture": ROOT / "ARCHITECTURE.md",
    "project/contributing": ROOT / "CONTRIBUTING.md",
    "project/changelog": ROOT / "CHANGELOG.md",
}
"""Pages of the site that only point to a file of the repository on a code host; here they are that file."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(#[^)\s]*)?(?=\))")


def take_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts the file in the place of its twin, and bends links between files of the repository accordingly."""
    page = DOCS / f"{docname}.md"
    origin = TWINS.get(docname, page)
    pages = {file: DOCS / f"{twin}.md" for twin, file in TWINS.items()}

    def bent(link: re.Match[str]) -> str:
        target = (origin.parent / link[1]).resolve()
        if target.is_dir():
            target /= "index.md"
        if not target.exists():
            return link[0]
        return os.path.relpath(pages.get(target, target), page.parent) + (link[2] or "")

    if origin is not page:
        app.env.note_dependency(str(origin))
        source[0] = origin.read_text(encoding="utf-8")
    source[0] = _LINK.sub(bent, source[0])


def reshape(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Turns the sections of our docstrings into reStructuredText: `Args:` into fields, `Safety:` into a box."""
    shown: list[str] = []
    section = ""
    for line in lines:
        if not line.strip():
            section = ""
        elif line == "Args:":
            section = "Args"
            continue
        elif line.startswith("Safety:"):
            section = "Safety"
            shown += [".. admonition:: Safety", ""]
        if section == "Args":
            named = re.fullmatch(r" {4}(\w+): (.*)", line)
            shown.append(f":param {named[1]}: {named[2]}" if named else line)
        elif section == "Safety":
            shown.append(f"   {line.removeprefix('Safety:').lstrip()}")
        else:
            shown.append(line)
    lines[:] = shown


def spell_out(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Shows a duration as what it may be, not by the name that the code has for it."""
    return signature and signature.replace("options.Seconds", "float | timedelta"), result


def setup(app: Sphinx) -> None:
    """Tells Sphinx about the three."""
    app.connect("autodoc-process-signature", spell_out)
    app.connect("source-read", take_in)
    app.connect("autodoc-process-docstring", reshape)
