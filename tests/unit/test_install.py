"""The script that installs what `make` needs: from where pip would, by uv."""

import subprocess
import sys
from pathlib import Path

from scripts.install import settings_of_pip

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install.py"


def test_uv_looks_where_pip_would() -> None:
    """pip's settings are handed on, and those of its environment go before those of its files."""
    listed = (
        ":env:.find-links='/wheels'\n"
        ":env:.index-url='https://env.example/simple'\n"
        "freeze.timeout='10'\n"
        "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
        "global.find-links='/other'\n"
        "global.index-url='https://file.example/simple'\n"
        "install.cert='/ca.pem'\n"
        "install.no-compile='yes'\n"
    )
    assert settings_of_pip(listed) == {
        "UV_DEFAULT_INDEX": "https://env.example/simple",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_uv_has_no_setting_for_is_left_to_pip() -> None:
    """It would get the packages from elsewhere, or not at all."""
    assert settings_of_pip("global.no-index='true'\nglobal.find-links='/wheels'\n") is None


def test_what_neither_can_install_is_a_failure(tmp_path: Path) -> None:
    """What uv refuses pip may try, and its refusal is the end: here, a package without a hash."""
    loose = tmp_path / "loose.txt"
    loose.write_text(f"bloomery @ file://{tmp_path}\n")
    command = [sys.executable, str(SCRIPT), "--no-index", "-r", str(loose)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "by pip, then" in done.stderr
    assert "hash" in done.stderr
