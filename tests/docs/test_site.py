"""`make docs` builds: the pages, the API from docstrings, and a search index, all in one folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import require
from docs.pages import DOCS, TREE, script


def built(folder: Path) -> Path:
    """The site, built as `make docs` does: a warning, about a link that leads nowhere, is an
    error."""
    require("mkdocs")
    require("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=TREE,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return folder


def check_pages(site: Path) -> None:
    """Each page of docs/ has its place, and so have those of the tree that pages lead to."""
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages += [f"tree/{name}" for name in script("site").OUTSIDE]
    for page in pages:
        path = site / re.sub(r"README\.md$", "index.md", page)
        assert path.with_suffix(".html").is_file(), page


def check_api(site: Path) -> None:
    """The API pages have classes and functions with what their docstrings say."""
    page = (site / "api" / "bloomery.html").read_text("utf-8")
    for name in ("BloomFilter", "BloomFilter.add_many", "FilterBank", "open"):
        assert f'id="bloomery.{name}"' in page, name
    assert "Add every key; a mask that is True where a key is definitely new." in page
    guard = (site / "api" / "guard.html").read_text("utf-8")
    assert 'id="bloomery.guard.Guard.get"' in guard


def check_search(site: Path) -> None:
    """The search index has the words of the pages and of the API."""
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {one["location"]: one["text"] for one in index["docs"]}
    assert "power cut" in places["service.html#what-it-promises"]
    assert any(place.startswith("api/bloomery.html#bloomery.CuckooFilter") for place in places)


def check_offline(site: Path) -> None:
    """No page brings a script, a style, a font or a picture of another host: it works offline."""
    fetched = re.compile(r"""<(?:script|img|link)\b[^>]*(?:src|href)=["']?(?:https?:)?//[^"'>]+""")
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text("utf-8")), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?https?:", style.read_text("utf-8")), style.name


@pytest.mark.slow
@pytest.mark.long
def test_the_site(tmp_path: Path) -> None:
    """The site builds without a warning; pages, API and search index are there, and it needs no
    other host. (One test: a build takes ten seconds of a processor.)"""
    site = built(tmp_path / "site")
    check_pages(site)
    check_api(site)
    check_search(site)
    check_offline(site)
