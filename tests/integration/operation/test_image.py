"""deploy/Dockerfile, whose instructions are run here without Docker: there are no images here.

What is real: every RUN but the two that need root, in the order and with the words of the file;
pip installs the pinned packages and the wheel's extras into an empty environment; ENTRYPOINT, CMD,
ENV and HEALTHCHECK are those of the file. What is not: the base images (this interpreter and its
maturin stand for them), the user, and the file system: its folders are below a temporary one, and
/src is this tree, so that what `make wheel` has compiled is not compiled again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from docs.pages import TREE
from integration.conftest import open_folder
from integration.servers import Server, free_ports

DOCKERFILE = TREE / "deploy" / "Dockerfile"
FOR_ROOT = ("apt-get", "useradd")
PASSWORD = b"correct horse battery staple"


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its words."""
    lines = [x for x in DOCKERFILE.read_text("utf-8").splitlines() if not x.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(x.partition(" ")[0], x.partition(" ")[2]) for x in whole.splitlines() if x.strip()]


def words(instruction: str) -> list[str]:
    """The JSON list of the last such instruction."""
    (last,) = [rest for name, rest in instructions() if name == instruction][-1:]
    found: list[str] = json.loads(last[last.index("[") :])
    return found


class Container(Server):
    """What the image would run, with its settings, below a folder."""

    tries = 1
    READY = re.compile(r"^bloomery ready: ", re.M)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.arguments = words("CMD")
        ports = free_ports(2)
        self.settings = dict(zip(("BLOOMERY_RESP_PORT", "BLOOMERY_HTTP_PORT"), ports, strict=True))

    def below(self, text: str) -> str:
        """A text of the file, with its folders where they are here."""
        own = re.sub(r"(?<![\w/])/(opt|wheels|var/lib)(?=/|\b)", rf"{self.folder}/\1", text)
        return own.replace("/src", str(TREE))

    def environment(self) -> dict[str, str]:
        """Of the last stage; and as the file's first lines say how to run it."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        last = DOCKERFILE.read_text("utf-8").rpartition("\nFROM ")[2]
        for line in re.findall(r"^ENV (.*)$", last, re.M):
            for name, _, value in (pair.partition("=") for pair in shlex.split(line)):
                env[name] = self.below(value).replace("${PATH}", env["PATH"])
        return env | {k: str(v) for k, v in self.settings.items()} | {"BLOOMERY_INSECURE": "yes"}

    def command(self) -> list[str]:
        return self._found([*words("ENTRYPOINT"), *self.arguments])

    def _found(self, command: list[str]) -> list[str]:
        # By the image's PATH; that of a parent is what Popen would look in.
        first = self.folder / "opt" / "bloomery" / "bin" / command[0]
        assert first.exists(), command
        return [str(first), *map(self.below, command[1:])]

    def ready(self) -> bool:
        return self.READY.search(self.printed()) is not None

    def health(self) -> subprocess.CompletedProcess[str]:
        """Run the HEALTHCHECK."""
        return subprocess.run(
            self._found(words("HEALTHCHECK")),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )


@pytest.fixture(scope="module")
def image() -> Iterator[Container]:
    """The file's instructions carried out."""
    with open_folder() as root:
        made = Container(root)
        env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        env["PYO3_PYTHON"] = sys.executable  # as the Makefile has it: else all is compiled again
        env["PIP_NO_COMPILE"] = "1"  # ten seconds of a core, for modules that are never imported
        left_out = []
        for name, rest in instructions():
            if name == "RUN" and rest.startswith(FOR_ROOT):
                left_out.append(rest.split()[0])
            elif name == "RUN":
                subprocess.run(["sh", "-ec", made.below(rest)], cwd=TREE, env=env, check=True)
            elif name == "COPY" and not rest.startswith("--from="):
                *sources, to = rest.split()
                assert all((TREE / source).exists() for source in sources), rest
                if to.startswith("/"):
                    Path(made.below(to)).write_bytes((TREE / sources[0]).read_bytes())
        assert tuple(left_out) == FOR_ROOT
        Path(made.below("/var/lib/bloomery")).mkdir(parents=True, mode=0o700)
        yield made
        made.kill()


@pytest.mark.long
def test_the_image_serves_and_its_healthcheck_passes(image: Container) -> None:
    """After `user add` the image's command serves; HEALTHCHECK is 0 while it is ready, else 1."""
    refused = subprocess.run(
        image.command(), env=image.environment(), capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 2
    assert "there are no users: bloomery user add" in refused.stderr
    user = ["user", "add", "ops", "--role", "admin", "--password-stdin"]
    image.arguments, served = user, image.arguments
    subprocess.run(image.command(), env=image.environment(), input=PASSWORD, check=True)
    image.arguments = served
    assert image.health().returncode == 1
    image.start()
    assert image.health().returncode == 0, image.health().stderr
    assert image.stop() == 0
    assert "refused" in image.health().stderr


def test_it_serves_as_nobody_special() -> None:
    """The image has a user that is not root, by number, for those who check that."""
    last = DOCKERFILE.read_text("utf-8").rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+):\d+$", last, re.M)
    assert int(user) > 0
    assert f"useradd --uid {user} " in last


def test_what_is_copied_is_sent() -> None:
    """The list of what Docker may read of the tree has all that COPY names."""
    sent = (TREE / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    allowed = [line[1:] for line in sent if line.startswith("!")]
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert any(fnmatch(source, pattern) for pattern in allowed), source
