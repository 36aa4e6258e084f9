"""Every module of the tree with the first sentence of its docstring: what `make tree` prints.

`python scripts/tree.py service` prints the modules below folders of that name alone, and
`python scripts/tree.py --page` writes the table of rooms at the end of docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
CRATES = ("core", "python", "server")
ROOTS = (*(TREE / "crates" / name / "src" for name in CRATES), TREE / "python/bloomery")
PAGE = TREE / "docs" / "architecture.md"
MARK = "<!-- made by scripts/tree.py -->\n"
SUFFIXES = {".rs", ".py", ".pyi"}


def modules() -> list[Path]:
    """Every module of the crates and of the package, a folder's own file before the rest."""
    found = (path for root in ROOTS for path in root.rglob("*") if path.suffix in SUFFIXES)
    return sorted(found, key=lambda path: (path.parent, not _is_room(path), path.name))


def _is_room(path: Path) -> bool:
    return path.name in {"__init__.py", "mod.rs", "lib.rs"}


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring; empty if it has none."""
    text = path.read_text("utf-8")
    if path.suffix == ".rs":
        head = re.match(r"(?://!.*\n)*", text)
        whole = "\n".join(
            line.removeprefix("//!").strip() for line in (head[0] if head else "").splitlines()
        )
    else:
        whole = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(whole.strip().split("\n\n")[0].split())
    first = re.match(r".*?\.(?=\s[A-Z`*]|$)", paragraph)
    return first[0] if first else paragraph


def listing(part: str = "") -> Iterator[str]:
    """The lines to print: a heading for each folder, then its modules."""
    last = None
    for path in modules():
        folder = path.parent.relative_to(TREE)
        if part and part not in folder.parts:
            continue
        if folder != last:
            yield f"\n{folder}/" if last else f"{folder}/"
            last = folder
        yield f"  {path.name:<22} {sentence(path)}"


def rooms() -> dict[str, str]:
    """Each folder with the first sentence of its own file: `__init__.py`, `mod.rs` or `lib.rs`."""
    found = (path for path in modules() if _is_room(path))
    return {str(path.parent.relative_to(TREE)): sentence(path) for path in found}


def page() -> str:
    """The whole of docs/architecture.md: what people wrote, and the table of rooms."""
    written = PAGE.read_text("utf-8").partition(MARK)[0]
    rows = [f"| `{room}/` | {what} |\n" for room, what in rooms().items()]
    return f"{written}{MARK}\n| room | what it is |\n|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--page"]:
        PAGE.write_text(page(), "utf-8")
    else:
        print("\n".join(listing(*sys.argv[1:2])))
