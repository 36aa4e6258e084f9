"""What mkdocs is told beside mkdocs.yml (a hook of it): API pages, and links out of docs/.

A page of docs/ may link to any file of the tree, since it is read in the tree too. On the site,
pages of the tree that are listed here have a place, below `tree/`; of a link to any other file only
the text is left.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Pages of the tree outside docs/ that are on the site.
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/results/summary.md",
    "examples/README.md",
)
# What has an API page, with what it is about.
API = {
    "bloomery": ("bloomery", "Filters, banks and `open`: what `import bloomery` brings."),
    "errors": ("bloomery.errors", "Every error, each with a stable code."),
    "sizing": ("bloomery.sizing", "How large a filter must be, without building one."),
    "guard": ("bloomery.guard", "Exact answers: filter, then cache, then source."),
    "client": ("bloomery.client", "A server's filters over HTTP."),
    "redis": ("bloomery.integrations.redis", "Filters whose bits are in Redis."),
    "apps": ("bloomery.apps", "Consumers, mail, cache admission, seen articles, revoked tokens."),
    "feeds": ("bloomery.feeds", "Signed feeds: published, followed, and URLs."),
    "spark": ("bloomery.integrations.spark", "Filters of Spark's columns, and before its joins."),
    "polars": ("bloomery.integrations.polars", "A filter as a term of a Polars query."),
    "duckdb": ("bloomery.integrations.duckdb", "A filter as a function of DuckDB."),
    "parquet": ("bloomery.integrations.parquet", "Parquet's own filters."),
    "building": ("bloomery.building", "Filter files out of databases and files."),
    "signatures": ("bloomery.signatures", "One index for many columns of a table."),
    "segments": ("bloomery.segments", "Segments that are skipped: a store, and an index of files."),
    "scrapy": ("bloomery.integrations.scrapy", "A dupefilter and a scheduler for Scrapy."),
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API pages and the pages outside docs/."""
    from mkdocs.structure.files import File

    tree = Path(config.docs_dir).parent
    for name, (module, about) in API.items():
        options = "    options:\n      show_root_heading: false\n"
        text = f"# `{module}`\n\n{about}\n\n::: {module}\n{options}"
        files.append(File.generated(config, f"api/{name}.md", content=text))
    for name in OUTSIDE:
        text = (tree / name).read_text("utf-8")
        files.append(File.generated(config, f"tree/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where a file is on the site."""
    here = page.file.src_uri
    known = set(files.src_uris)

    def place(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        there = site_uri(
            posixpath.normpath(posixpath.join(posixpath.dirname(tree_path(here)), path))
        )
        if there not in known:
            return match[0] if picture else text
        found = posixpath.relpath(there, posixpath.dirname(here) or ".")
        return f"{picture}[{text}]({found}{'#' + anchor if anchor else ''})"

    parts, at = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(place, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, _LINK.sub(place, markdown[at:])])


def tree_path(uri: str) -> str:
    """Where a page of the site is in the tree."""
    return uri.removeprefix("tree/") if uri.startswith("tree/") else f"docs/{uri}"


def site_uri(path: str) -> str:
    """Where a file of the tree is on the site, if it is there."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"tree/{path}"
