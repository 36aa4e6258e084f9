"""The wheel in a virtual environment with nothing else: what `pip install bloomery` gives."""

import email
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from conftest import missing

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


@pytest.mark.parametrize("arguments", [["plan", "1e9", "0.01"], ["dedup"], ["--help"]])
def test_command_without_its_extra_says_what_to_install(
    bare: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """Without the cli extra, `bloomery` is one line on standard error that says what to install."""
    done = run(bare, tmp_path, "bloomery", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "pip install 'bloomery[cli]'" in done.stderr


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The wheel has the extension, its stub, py.typed and the licence, and no stray files."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"bloomery/py.typed", "bloomery/_native.pyi", "bloomery/__init__.py"} <= set(names)
    # Alembic finds revisions as files.
    for migration in ("env.py", "versions/v0001_tables.py"):
        assert f"bloomery/service/registry/migrations/{migration}" in names
    assert "bloomery/cli/trial/haproxy.cfg" in names  # which `bloomery cluster up` runs
    assert len([n for n in names if n.startswith("bloomery/_native.") and n[-4:] != ".pyi"]) == 1
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"bloomery", next(t for t in tops if t.endswith(".dist-info"))}
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]


def test_wheel_asks_for_nothing_at_run_time(wheel: Path) -> None:
    """Every requirement in the wheel's metadata belongs to an extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    plain = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert plain == []
