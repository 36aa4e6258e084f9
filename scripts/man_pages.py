"""Man pages of the command, made from its help: `make format`, or `python scripts/man_pages.py`.

They are in packaging/data/share/man/man1, which the wheel installs into share/man. There man looks
too: it searches beside each bin of PATH. `--check` only compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bloomery.cli.app import build

PAGES = Path(__file__).resolve().parent.parent / "packaging" / "data" / "share" / "man" / "man1"


def roff(text: str) -> str:
    """Text as man's own language has it: nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def page(path: str, command: Any, under: list[str]) -> str:
    """The page of a command; `under` are those below it."""
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    title = path.replace(" ", "-")
    summary = command.get_short_help_str(limit=200).rstrip(".")
    lines = [
        f'.TH "{title.upper()}" 1 "" "bloomery" "User Commands"',
        ".SH NAME",
        f"{roff(title)} \\- {roff(summary)}",
        ".SH SYNOPSIS",
        f".B {roff(path)}",
        roff(usage),
        ".SH DESCRIPTION",
        *(f".PP\n{roff(part)}" for part in str(command.help).split("\n\n")),
    ]
    for kind, heading in (("argument", "ARGUMENTS"), ("option", "OPTIONS")):
        described = [p for p in command.params if p.param_type_name == kind and not p.hidden]
        if described:
            lines += [f".SH {heading}", *(parameter(each, context) for each in described)]
    if under:
        pages = ", ".join(f".BR {roff(f'{title}-{name}')} (1)" for name in sorted(under))
        lines += [".SH COMMANDS", *pages.split(", ")]
    examples = re.findall(r"Example: (.*)", command.epilog or "")
    if examples:
        lines += [".SH EXAMPLES", *(f".PP\n.EX\n{roff(each)}\n.EE" for each in examples)]
    return "\n".join(lines) + "\n"


def parameter(described: Any, context: Any) -> str:
    """An option or an argument, and what it is for."""
    metavar = described.make_metavar(context)
    if described.param_type_name == "argument":
        return f".TP\n.I {roff(metavar)}\n{roff(described.help or '')}"
    names = ", ".join(reversed([*described.opts, *described.secondary_opts]))
    value = "" if described.is_flag else f" \\fI{roff(metavar)}\\fR"
    return f".TP\n\\fB{roff(names)}\\fR{value}\n{roff(described.help or '')}"


def pages() -> Iterator[tuple[str, str]]:
    """Each file of a page, and what it says."""
    root = build()
    below = {name: list(getattr(one, "commands", {})) for name, one in root.commands.items()}
    yield "bloomery.1", page("bloomery", root, list(below))
    for name, command in root.commands.items():
        yield f"bloomery-{name}.1", page(f"bloomery {name}", command, below[name])
        for inner in below[name]:
            text = page(f"bloomery {name} {inner}", command.commands[inner], [])
            yield f"bloomery-{name}-{inner}.1", text


def main() -> int:
    """Write the pages, or say which are not as the help is."""
    wanted = dict(pages())
    there = {path.name: path.read_text("utf-8") for path in PAGES.glob("*.1")}
    if "--check" in sys.argv[1:]:
        wrong = sorted(n for n in {*wanted, *there} if wanted.get(n) != there.get(n))
        if wrong:
            print(f"not as the help is: {', '.join(wrong)}: make format", file=sys.stderr)
        return 1 if wrong else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - wanted.keys():
        (PAGES / name).unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
