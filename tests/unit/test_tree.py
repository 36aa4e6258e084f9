"""The rules of the tree that no linter knows: layers, the public surface, what may be committed."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

import bloomery
from bloomery.extras import EXTRAS
from conftest import missing, require

TREE = Path(__file__).resolve().parents[2]
PACKAGE = TREE / "python" / "bloomery"

# Which parts of the package a part may import (docs/architecture.md): imports point one way. A new
# part gets a row here on the day it is made. `bloomery` is the package itself, with its re-exports.
_BASE = {"_native", "errors", "extras", "sizing", "suggestions", "types"}
MAY_IMPORT = {
    "errors": set(),
    "extras": {"errors"},
    "_native": {"errors", "types"},
    "types": set(),
    "suggestions": set(),
    "boottime": set(),
    "browser": set(),
    "flow": set(),
    "redis_client": {"errors", "extras"},
    "sizing": {"_native", "errors", "suggestions", "types"},
    "storage": _BASE,
    "filters": _BASE | {"storage"},
    "database_errors": {"errors", "storage"},
    "json_keys": {"_native", "errors"},
    "names": {"errors"},
    "guard": _BASE | {"boottime", "database_errors", "filters", "flow", "redis_client", "storage"},
    "client": _BASE | {"filters", "guard", "json_keys", "names", "storage"},
    "bloomery": _BASE | {"client", "filters"},
    "building": _BASE | {"database_errors", "filters", "storage"},
    "apps": _BASE | {"filters", "flow", "storage"},
    "feeds": _BASE | {"filters", "storage"},
    "integrations": _BASE
    | {"apps", "client", "filters", "flow", "guard", "names", "redis_client", "storage"},
    "segments": _BASE | {"filters", "integrations", "storage"},
    "signatures": _BASE | {"building", "database_errors", "filters", "integrations", "storage"},
    "service": _BASE
    | {
        "bloomery",
        "database_errors",
        "filters",
        "json_keys",
        "names",
        "storage",
        "guard",
        "integrations",
        "building",
        "boottime",
        "browser",
        "redis_client",
    },
    "dashboard": {"bloomery", "errors", "service", "sizing", "types"},
    "cli": _BASE
    | {
        "apps",
        "building",
        "client",
        "feeds",
        "filters",
        "guard",
        "integrations",
        "segments",
        "service",
        "signatures",
        "storage",
    },
    "__main__": {"cli"},
}


def module_of(source: Path) -> str:
    """The name of a file's module: `bloomery.filters`, `bloomery.filters.bloom`."""
    parts = source.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module there is, by its name."""
    sources = (p for p in PACKAGE.rglob("*.py*") if p.suffix in {".py", ".pyi"})
    return {module_of(source): source for source in sorted(sources)}


def part_of(module: str) -> str:
    """The part of the package that a module belongs to: `filters`, `errors`, `bloomery` itself."""
    return module.split(".")[1] if "." in module else module


@cache
def imports(module: str) -> list[tuple[str, int]]:
    """Each import of ours in a module, and its line: also those inside functions and for types."""
    found = []
    for node in ast.walk(ast.parse(modules()[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found += [
                (name if name in modules() else str(node.module), node.lineno) for name in names
            ]
    return [(name, line) for name, line in found if name in modules()]


def committed() -> list[Path]:
    """Every file that is, or would be, committed."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listed, cwd=TREE, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        missing("a git checkout")
    return [p for name in found.decode().split("\0") if name and (p := TREE / name).is_file()]


def text_of(path: Path) -> str:
    """A file's text; nothing for a binary one."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def test_imports_point_one_way() -> None:
    """No part of the package imports one that stands on it."""
    wrong = []
    for module, source in modules().items():
        part = part_of(module)
        assert part in MAY_IMPORT, f"{source.name}: a new part needs a row in MAY_IMPORT"
        for target, line in imports(module):
            if part_of(target) not in MAY_IMPORT[part] | {part}:
                place = f"{source.relative_to(TREE)}:{line}"
                wrong.append(f"{place}: {part} may not import {part_of(target)}")
    assert not wrong, "\n".join(wrong)


def test_no_cycle_of_imports() -> None:
    """No module imports itself by way of others, not even for types or inside a function."""
    graph: dict[str, set[str]] = {}
    for module in modules():
        graph[module] = set()
        for target, _ in imports(module):
            # What Python runs first: the packages around the target that are not around us.
            above = accumulate(target.split("."), "{}.{}".format)
            needed = {name for name in above if not f"{module}.".startswith(f"{name}.")}
            graph[module] |= needed | {target}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        pytest.fail(" <- ".join(problem.args[1]))


def test_integrations_do_not_know_each_other() -> None:
    """One integration can be removed without touching another, but for those that are over it."""
    over = {"scrapy": {"redis"}}  # spiders share a filter in Redis
    folder = PACKAGE / "integrations"
    for source in folder.rglob("*.py"):
        own = source.relative_to(folder).parts[0].removesuffix(".py")
        named = re.findall(r"bloomery\.integrations(?:\.| import )(\w+)", text_of(source))
        allowed = {own} | over.get(own, set())
        assert own == "__init__" or set(named) <= allowed, source.relative_to(TREE)


def test_unit_tests_mirror_the_package() -> None:
    """Every folder of unit tests is about the room of the same name."""
    unit = TREE / "tests" / "unit"
    folders = {path.relative_to(unit) for path in unit.rglob("test_*.py")}
    rooms = {folder.parent for folder in folders}
    assert [str(room) for room in sorted(rooms) if not (PACKAGE / room).is_dir()] == []


def test_public_surface_is_all() -> None:
    """`bloomery.__all__` is sorted and is exactly what a person sees in the package."""
    assert list(bloomery.__all__) == sorted(bloomery.__all__)
    names = dir(bloomery)  # before they are asked for: a client's import brings modules along
    modules = {name for name in names if isinstance(getattr(bloomery, name), type(sys))}
    seen = {name for name in names if not name.startswith("_")} - modules
    assert seen <= set(bloomery.__all__)
    assert set(bloomery.__all__) == seen | {"__version__", "errors", "sizing"}


def test_init_holds_no_logic() -> None:
    """`bloomery/__init__.py` is a docstring, imports of our own parts and names: nothing runs."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text("utf-8")).body:
        if isinstance(node, ast.If):  # for checkers of types
            [node] = node.body
        plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        assert plain or docstring, ast.unparse(node)


def test_import_brings_no_optional_package() -> None:
    """`import bloomery` imports none of the optional packages, even where they are installed, and
    of ours only what it names."""
    program = "import sys, bloomery; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert not {name.partition(".")[0] for name in loaded} & set(EXTRAS)
    ours = {part_of(name) for name in loaded if name.partition(".")[0] == "bloomery"}
    assert ours <= _BASE | {"bloomery", "client", "filters", "json_keys", "names", "storage"}


def test_a_server_starts_without_what_it_may_not_need() -> None:
    """A restart waits for these imports: they are not of HTTP, the registry, metrics or nodes."""
    require("httptools")
    program = "import sys; from bloomery.service.server import Server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert "httptools" in loaded
    late = {
        *("alembic", "fastapi", "jinja2", "prometheus_client", "psycopg", "pydantic"),
        *("redis", "sqlalchemy", "starlette"),
    }
    assert {name.partition(".")[0] for name in loaded} & late == set()
    assert [name for name in loaded if name.startswith("bloomery.service.replication.")] == []


def test_no_file_names_a_machine() -> None:
    """No committed file holds a path of somebody's machine."""
    # After a letter or a dot it is a URL's or a relative path's middle, and no machine's.
    machine = re.compile(r"(?<![\w.}])/(?:work|root|home|Users|opt/wheels|tmp/spec)(?:/|\b(?=\W))")
    own = re.compile(r"\(\?:work\|root\|home")  # the line above
    found = [
        f"{path.relative_to(TREE)}:{number}: {line.strip()[:80]}"
        for path in committed()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if machine.search(line) and not own.search(line)
    ]
    assert not found, "\n".join(found)


def test_locks_name_canonical_hosts_only() -> None:
    """What pins dependencies names no package host but the public ones, and no index."""
    canonical = {"crates.io", "files.pythonhosted.org", "github.com", "index.crates.io", "pypi.org"}
    locks = [*(TREE / "requirements").iterdir(), TREE / "Cargo.lock"]
    for path in locks:
        text = text_of(path)
        assert set(re.findall(r"https?://([\w.:@-]+)", text)) <= canonical, path.name
        assert not re.search(r"^--|index-url|find-links", text, re.M), path.name
    index = r"registry\+https://(?!github\.com/rust-lang/crates\.io-index)"
    assert not re.search(index, text_of(TREE / "Cargo.lock"))


def test_locks_pin_every_requirement() -> None:
    """Every requirement in a lock is an exact version with a hash, and maturin's is pyproject's."""
    for path in sorted((TREE / "requirements").glob("*.in")):
        lock = path.with_suffix(".txt").read_text("utf-8")
        entries = re.findall(r"^[a-z0-9].*?(?=^\S|\Z)", lock, re.M | re.S)
        assert entries, path.name
        for entry in entries:
            assert re.match(r"[\w.-]+(\[\w+\])?==\S+", entry), entry.splitlines()[0]
            assert "--hash=sha256:" in entry, entry.splitlines()[0]
    (maturin,) = re.findall(r"^maturin==\S+", (TREE / "requirements/build.txt").read_text(), re.M)
    assert f'requires = ["{maturin}"]' in (TREE / "pyproject.toml").read_text("utf-8")


def test_version_is_the_same_everywhere() -> None:
    """The package, Cargo.toml and the newest heading of the changelog agree on the version."""
    cargo = (TREE / "Cargo.toml").read_text("utf-8")
    assert f'version = "{bloomery.__version__}"' in cargo
    newest = re.search(r"^## (\S+)", (TREE / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest is not None
    assert newest[1] == bloomery.__version__


def make_targets() -> list[str]:
    """The commands of the Makefile, which are its phony targets."""
    found = re.search(r"^\.PHONY: (.*)$", (TREE / "Makefile").read_text("utf-8"), re.M)
    assert found is not None
    return found[1].split()


@pytest.mark.parametrize("target", make_targets())
def test_every_make_target_is_explained(target: str) -> None:
    """Each command is in `make help`, and CONTRIBUTING.md says when to use it."""
    makefile = (TREE / "Makefile").read_text("utf-8")
    assert re.search(rf"^{target}:.*## \S", makefile, re.M), f"{target} has no `## help`"
    assert f"`make {target}`" in (TREE / "CONTRIBUTING.md").read_text("utf-8")
