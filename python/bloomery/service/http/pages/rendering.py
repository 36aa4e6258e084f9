"""The templates of pages, compiled: everything in them is escaped, and a missing value is an error.
Imported when the first page is asked for, since most servers start without showing one."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bloomery.service.http.pages import assets


def _with_code(text: str) -> Markup:
    """Text in which what stands between backticks is code."""
    parts = [Markup("<code>{}</code>" if at % 2 else "{}") for at in range(1 + text.count("`"))]
    words = zip(parts, text.split("`"), strict=True)
    return Markup("").join(part.format(word) for part, word in words)


ENVIRONMENT = Environment(
    loader=PackageLoader("bloomery.service.http.pages", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals["asset"] = assets.address
ENVIRONMENT.filters["code"] = _with_code
for _name in ENVIRONMENT.list_templates():
    ENVIRONMENT.get_template(_name)
