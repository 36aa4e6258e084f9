"""Install pinned, hashed packages into the environment that runs this: by uv, or else by pip.

uv takes a third of pip's processor time, and gets the packages from where pip would: pip's
settings, of the machine and of the environment, are handed on to it. Where uv cannot (there is none
for this platform, or a setting of pip has no like in uv), pip does it.

    .venv/bin/python scripts/install.py -r requirements/run.txt
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# Later ones go before earlier ones.
_SECTIONS = ["global", "install", ":env:"]
# What uv calls pip's settings, and what stands between several values of one.
_NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
# What uv has no variable for: with these, pip installs.
_PIP_ONLY = {"no-index", "client-cert", "constraint", "no-binary", "only-binary"}


def settings_of_pip(listed: str) -> dict[str, str] | None:
    """What `pip config list` printed, as variables of uv's environment; None if they cannot be."""
    found = re.findall(r"^(\S+?)\.([\w-]+)=(.*)$", listed, re.M)
    lines = [line for line in found if line[0] in _SECTIONS]
    if _PIP_ONLY & {name for _, name, _ in lines}:
        return None
    settings = {}
    for _, name, value in sorted(lines, key=lambda line: _SECTIONS.index(line[0])):
        if name in _NAMES:
            variable, between = _NAMES[name]
            settings[variable] = between.join(str(ast.literal_eval(value)).split())
    # Of several indexes pip takes the best of all; the hashes say that it is the right one.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **settings}


def by_uv(arguments: list[str]) -> bool:
    """Whether uv could install them."""
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        return False
    listed = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=True)
    settings = settings_of_pip(listed.stdout)
    if settings is None:
        return False
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--require-hashes"]
    environment = {**settings, **os.environ}
    return subprocess.run([*command, *arguments], env=environment, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Install what pip's arguments say; pip's exit code, if it had to."""
    os.environ["DIST_EXTRA_CONFIG"] = str(Path(__file__).with_name("stored-wheels.cfg"))
    if by_uv(arguments):
        return 0
    print("scripts/install.py: uv did not install them; by pip, then", file=sys.stderr)
    command = [*_PIP, "install", "--quiet", "--require-hashes", *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
