"""The tables of docs/access.md, made from the operations, the table of commands and the routes of
HTTP: `python scripts/access_page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from bloomery.service.http.app import make
from bloomery.service.permissions import OPERATIONS, Role

sys.path.insert(0, str(Path(__file__).resolve().parent))

from commands_page import every

PAGE = Path(__file__).resolve().parent.parent / "docs" / "access.md"
MARK = "<!-- made by scripts/access_page.py -->\n"


def page() -> str:
    """The whole page: what people wrote, and the tables."""
    written = PAGE.read_text("utf-8").partition(MARK)[0]
    return written + MARK + "".join((_operations(), _commands(), _routes()))


def _role(operation: str) -> str:
    wanted = OPERATIONS[operation]
    if wanted.role is Role.NOBODY:
        return "nobody"
    return wanted.role.name.lower() + (", pattern `*`" if wanted.whole else "")


def _operations() -> str:
    rows = [f"| {name} | {_role(name)} | {one.what} |\n" for name, one in OPERATIONS.items()]
    return (
        "\n| operation | takes | what |\n|---|---|---|\n"
        + "".join(rows)
        + "\nEach role may do what those before it may: read, write, admin. *nobody*: without logging in.\n"
    )


def _commands() -> str:
    rows = [f"| `{one.name}` | {one.does} | {_role(one.does)} |\n" for one in every()]
    return "\n## Commands\n\n| command | operation | takes |\n|---|---|---|\n" + "".join(rows)


def routes() -> list[tuple[str, str, str]]:
    """Method, path and operation of each route of HTTP."""
    paths = make(None).openapi()["paths"]
    return [
        (method.upper(), path, about["x-operation"])
        for path, methods in paths.items()
        for method, about in methods.items()
    ]


def _routes() -> str:
    rows = [f"| `{method} {path}` | {does} | {_role(does)} |\n" for method, path, does in routes()]
    return "\n## HTTP\n\n| route | operation | takes |\n|---|---|---|\n" + "".join(sorted(rows))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
