"""The tables of docs/access.md, made from the operations, the table of commands and the routes of
HTTP: `python scripts/access_page.py`."""

from __future__ import annotations

from pathlib import Path

from bloomery.service.access.permissions import OPERATIONS, Role
from bloomery.service.http.app import make
from bloomery.service.resp import dispatch
from bloomery.service.resp.table import every

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
    return "\n| operation | takes | what |\n|---|---|---|\n" + "".join(rows)


def _commands() -> str:
    assert dispatch.HANDLERS  # importing them has filled the table
    rows = [f"| `{one.name}` | {one.does} | {_role(one.does)} |\n" for one in every()]
    return "\n## Commands\n\n| command | operation | takes |\n|---|---|---|\n" + "".join(rows)


def routes() -> list[tuple[str, str]]:
    """Each route of HTTP, as GET /path, and its operation."""
    paths = make().openapi()["paths"]
    found = [
        (f"{method.upper()} {path}", about.get("x-operation", "connect"))
        for path, methods in paths.items()
        for method, about in methods.items()
    ]
    return [*sorted(found, key=lambda one: one[0].split()[::-1]), ("GET /openapi.json", "connect")]


def _routes() -> str:
    rows = [f"| `{route}` | {does} | {_role(does)} |\n" for route, does in routes()]
    return "\n## HTTP\n\n| route | operation | takes |\n|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
