"""Build a wheel for every CPython on this machine, and try each where nothing else is installed."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from scripts.pythons import interpreters

TREE = Path(__file__).resolve().parent.parent
OUT = TREE / "dist" / "wheels"
TRY = "import bloomery; f = bloomery.BloomFilter(9); f.add('a'); assert 'a' in f and 'b' not in f"


def main() -> int:
    found = interpreters()
    if not found:
        sys.exit("wheels: no CPython of 3.10 or later was found: PYTHONS=path names one")
    shutil.rmtree(OUT, ignore_errors=True)
    for label, python in found.items():
        print(f"wheels: {label} ({python})", flush=True)
    maturin = Path(sys.executable).parent / "maturin"
    build = ("build", "--quiet", "--release", "--locked", "--out", OUT, "--interpreter")
    subprocess.run([maturin, *build, *found.values()], cwd=TREE, check=True)
    for label, python in found.items():
        tag = f"cp{label.removesuffix('t').replace('.', '')}"
        (wheel,) = OUT.glob(f"*-{tag}-{tag}{'t' if label.endswith('t') else ''}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(OUT / label)
        subprocess.run(
            [python, "-I", "-c", f"import sys; sys.path.insert(0, '{OUT / label}'); {TRY}"],
            check=True,
        )
        shutil.rmtree(OUT / label)
        print(f"wheels: {wheel.relative_to(TREE)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
