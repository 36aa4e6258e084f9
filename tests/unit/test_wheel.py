"""The wheel in clean environments: what `pip install bloomery` gives, and with each extra.

An environment of an extra is a new virtual environment with this wheel, to which those of the
distributions in .venv are linked that pip would install, by their metadata: without a network, and
in a second each. That pip comes to the same is seen in tests/integration/operation/test_image.py,
where it installs an extra in earnest.
"""

import email.message
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from bloomery import __version__
from conftest import missing, require
from unit.distributions import closure

TREE = Path(__file__).resolve().parents[2]

# Add, ask and save in one process; ask again in a second, where str hashes have another seed.
ADD_AND_SAVE = """
import bloomery
seen = bloomery.BloomFilter(capacity=1_000, error_rate=0.01)
assert seen.add("https://example.org/") is True
assert seen.add("https://example.org/") is False
assert seen.add_many(["a", b"b", 3, ("c", 4)]) == [True] * 4
seen.save("seen.bloom")
"""
LOAD_AND_ASK = """
import bloomery
seen = bloomery.BloomFilter.load("seen.bloom")
assert "https://example.org/" in seen
assert seen.contains_many(["a", b"b", 3, ("c", 4)]) == [True] * 4
assert "never added" not in seen
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel of this interpreter that `make wheel` built, newer than every source."""
    if named := os.environ.get("BLOOMERY_WHEEL"):
        return Path(named)
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    abi = tag + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
    built = sorted(
        (TREE / "dist").glob(f"bloomery-*-{tag}-{abi}-*.whl"), key=lambda w: w.stat().st_mtime
    )
    if not built:
        missing("a wheel for this interpreter (`make wheel`)")
    sources = [p for p in (TREE / "python").rglob("*.py*") if p.suffix in {".py", ".pyi"}]
    sources += [*(TREE / "crates").rglob("*.rs"), TREE / "pyproject.toml"]
    if max(p.stat().st_mtime for p in sources) > built[-1].stat().st_mtime:
        missing("a wheel newer than the sources (`make wheel`)")
    return built[-1]


def metadata(wheel: Path) -> email.message.Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new virtual environment that holds the wheel and nothing else."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    bin_folder = home / ("Scripts" if os.name == "nt" else "bin")
    # --no-index and not --no-deps: if the wheel asked for anything, this would fail.
    install = ["--python", str(bin_folder / "python"), "install", "--quiet", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", *install, "--disable-pip-version-check", str(wheel)],
        check=True,
        env={k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"},
    )
    return bin_folder


def run(bare: Path, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the bare environment, away from the tree and its settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    first, *rest = command
    return subprocess.run(
        [str(bare / first), *rest], cwd=cwd, env=env, capture_output=True, text=True, timeout=60
    )


def test_bare_install_adds_asks_and_saves(bare: Path, tmp_path: Path) -> None:
    """The wheel alone imports, adds, asks and saves, and another process loads and agrees."""
    for program in (ADD_AND_SAVE, LOAD_AND_ASK):
        done = run(bare, tmp_path, "python", "-W", "error", "-c", program)
        assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["seen.bloom"]


def test_import_comes_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    """What the bare environment imports is the installed package, not this tree."""
    done = run(bare, tmp_path, "python", "-c", "import bloomery; print(bloomery.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(bare.parent), done


@pytest.mark.parametrize("command", ["bloomery", "python -m bloomery"])
@pytest.mark.parametrize("argument", ["--version", "version"])
def test_version_without_extras(bare: Path, tmp_path: Path, command: str, argument: str) -> None:
    """The version needs no extra: it is what a person asks for when something is wrong."""
    done = run(bare, tmp_path, *command.split(), argument)
    assert (done.returncode, done.stdout) == (0, f"bloomery {__version__}\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "what", "extra"),
    [
        (["plan", "1e9", "0.01"], "`bloomery plan`", "cli"),
        (["--help"], "the command line", "cli"),
        (["serve"], "`bloomery serve`", "serve"),
        (["user", "list"], "`bloomery user`", "serve"),
    ],
)
def test_command_without_its_extra_says_what_to_install(
    bare: Path, tmp_path: Path, arguments: list[str], what: str, extra: str
) -> None:
    """Without the extra, a command is one line on standard error that says what to install."""
    done = run(bare, tmp_path, "bloomery", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bloomery: {what} needs typer: pip install 'bloomery[{extra}]'\n"


# What each extra is for. A use either works, or prints the error of the extra that it lacks.
USES = """
import contextlib, json, os, sys, tempfile
import bloomery
from bloomery.building import open_rows
from bloomery.cli import main
from bloomery.errors import MissingExtra
from bloomery.guard import LocalCache, RedisCache, SqlSource
from bloomery.integrations.redis import RedisFilter
from bloomery.storage.inputs import InputFile

def command(*arguments):
    with tempfile.TemporaryFile() as said:
        own = [os.dup(1), os.dup(2)]
        os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
        code = main(list(arguments))
        os.dup2(own[0], 1), os.dup2(own[1], 2)
        said.seek(0)
        text = said.read().decode()
    if code:
        raise MissingExtra(text)

def column(make):
    def use():
        keys = make()
        seen = bloomery.BloomFilter(10)
        seen.add_many(keys)
        assert type(seen.contains_many(keys)).__name__ == "ndarray"
    return use

def series(module):
    return lambda: __import__(module).Series([1, 2])

def serve():
    command("serve", "--check", "--data", "data", "--resp-port", "0", "--http-port", "0")
    import bloomery.service.server
    bloomery.service.server._import_rest()

uses = {
    "bloomery plan": lambda: command("plan", "1e6"),
    "bloomery serve": serve,
    "keys.zst": lambda: InputFile("keys.zst").__enter__(),
    "keys.csv": lambda: next(open_rows("keys.csv", columns=["key"]).batches()),
    "PostgreSQL": lambda: open_rows("postgresql://127.0.0.1:1/d", query="SELECT 1"),
    "Client": lambda: bloomery.Client("http://127.0.0.1:1"),
    "LocalCache": LocalCache,
    "SqlSource": lambda: SqlSource("sqlite:///rows.db", table="t", key="k"),
    "RedisCache": lambda: RedisCache("redis://127.0.0.1:1", "p:"),
    "RedisFilter": lambda: RedisFilter.open("redis://127.0.0.1:1", "seen"),
    "numpy": column(lambda: __import__("numpy").arange(3)),
    "pyarrow": column(lambda: __import__("pyarrow").array([1, 2])),
    "polars": column(series("polars")),
    "pandas": column(series("pandas")),
    "duckdb": column(lambda: __import__("duckdb").sql("SELECT range r FROM range(3)").arrow()),
}
told = {}
for name, use in uses.items():
    try:
        use()
        told[name] = "works"
    except MissingExtra as missing:
        told[name] = str(missing).rpartition("bloomery[")[2].partition("]")[0]
    except (bloomery.errors.SourceUnavailable, bloomery.errors.StoreUnavailable):
        told[name] = "works"  # as far as there is a server
    except ModuleNotFoundError as missing:  # of the user's own import
        told[name] = missing.name
    except Exception as wrong:
        told[name] = repr(wrong)
print(json.dumps(told))
"""
# A use, the extra that is named without it, and the extras that bring it.
WANTED = {
    "bloomery plan": ("cli", {"cli", "serve"}),
    "bloomery serve": ("serve", {"serve"}),
    "keys.zst": ("cli", {"cli", "serve"}),
    "keys.csv": ("arrow", {"arrow", "duckdb", "pandas"}),
    "PostgreSQL": ("postgresql", {"postgresql"}),
    "Client": ("client", {"client", "serve"}),
    "LocalCache": ("guard", {"guard", "serve"}),
    "SqlSource": ("guard", {"guard", "serve"}),
    "RedisCache": ("guard", {"guard", "redis"}),
    "RedisFilter": ("redis", {"guard", "redis"}),
    "numpy": ("numpy", {"numpy", "arrow", "duckdb", "pandas", "polars"}),
    "pyarrow": ("pyarrow", {"arrow", "duckdb", "pandas"}),
    "polars": ("polars", {"polars"}),
    "pandas": ("pandas", {"pandas"}),
    "duckdb": ("duckdb", {"duckdb"}),
}
EXTRAS = sorted(set().union(*(extras for _, extras in WANTED.values())))


@pytest.mark.slow
@pytest.mark.parametrize("extra", [*EXTRAS, "all"])
def test_each_extra_alone(wheel: Path, tmp_path: Path, extra: str) -> None:
    """In the environment of one extra, all that it is for works, and everything else names the
    right one."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in closure(metadata(wheel).get_all("Requires-Dist", []), extra):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # some share a folder
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    (tmp_path / "keys.csv").write_text("key\na\n")
    (tmp_path / "keys.zst").write_bytes(require("zstandard").compress(b"a\n"))
    done = run(home / "bin", tmp_path, "python", "-c", USES)
    assert done.returncode == 0, done.stderr
    wanted = {
        name: "works" if extra in {*extras, "all"} else named
        for name, (named, extras) in WANTED.items()
    }
    assert json.loads(done.stdout.splitlines()[-1]) == wanted


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The wheel has the extension, its stub, py.typed, the licence and man pages; nothing else."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"bloomery/py.typed", "bloomery/_native.pyi", "bloomery/__init__.py"} <= set(names)
    # Alembic finds revisions as files.
    for migration in ("env.py", "versions/v0001_tables.py"):
        assert f"bloomery/service/registry/migrations/{migration}" in names
    assert "bloomery/cli/trial/haproxy.cfg" in names  # which `bloomery cluster up` runs
    assert "bloomery/browser/bloomery.js" in names
    assert len([n for n in names if n.startswith("bloomery/_native.") and n[-4:] != ".pyi"]) == 1
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    assert any(n.endswith(".data/data/share/man/man1/bloomery-dedup.1") for n in names)
    tops = {name.split("/")[0] for name in names}
    about = {next(t for t in tops if t.endswith(end)) for end in (".dist-info", ".data")}
    assert tops == {"bloomery", *about}
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]


def test_wheel_asks_for_nothing_at_run_time(wheel: Path) -> None:
    """Every requirement in the wheel's metadata belongs to an extra."""
    plain = [r for r in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in r]
    assert plain == []


def test_metadata_says_who_and_where(wheel: Path) -> None:
    """What an index shows: licence, authors, links; and no system that nothing was ever run on."""
    shown = metadata(wheel)
    assert shown["License-Expression"] == "Apache-2.0"
    assert shown["Author"] == "The bloomery developers"
    links = dict(link.split(", ") for link in shown.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(links)
    systems = [c for c in shown.get_all("Classifier", []) if c.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
