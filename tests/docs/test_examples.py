"""What the documentation shows runs, and gives what it says."""

import ast
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from conftest import require
from docs.pages import TREE, blocks, name_of, pages

PAGES = [pytest.param(page, id=name_of(page)) for page in pages()]
EXAMPLES = sorted((TREE / "examples").glob("*.py"))
# Block languages that may stand on a page; anything else is a spelling mistake or a way round. SQL
# is run by tests/integration/test_registry.py, where its databases are; TOML is read by
# tests/unit/service/config/test_configuration.py.
# Pages whose Python needs a server: tests/integration/http/test_client_page.py runs it, and
# tests/integration/redis/test_redis_page.py and test_migrate_page.py.
# docs/spark.md and its example are run where their JVM is, in tests/integration/spark.
WITH_SERVER = {"docs/client.md", "docs/migrate.md", "docs/redis.md", "docs/spark.md"}
WITH_SPARK = {"spark_join.py"}
# Examples that start servers: half of what they are.
WITH_SERVERS = {
    "crawler.py",
    "edge_summaries.py",
    "exact_answers.py",
    "shared_crawl.py",
    "stream_consumer.py",
}
PEERS = ("pybloom-live", "rbloom", "abloom", "pybloomfiltermmap3")  # whose blocks run too
LANGUAGES = {"python", "console", "sql", "toml", "json", "yaml", "js", ""}


def stated_value(line: str) -> object:
    """The value that a comment behind an expression states: `# 3` or `# True: maybe`."""
    comment = line.rpartition("  # ")[2]
    for text in (comment, comment.partition(": ")[0]):
        try:
            return ast.literal_eval(text.strip())
        except (SyntaxError, ValueError):
            continue
    return NotImplemented


def run(text: str, first_line: int, page: Path, names: dict[str, object]) -> None:
    """Run a block, statement by statement; an expression has the value its comment states."""
    module = ast.parse("\n" * (first_line - 1) + text, name_of(page))
    for node in module.body:
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), name_of(page), "eval"), names)
            line = text.splitlines()[(node.end_lineno or node.lineno) - first_line]
            if "  # " in line and (stated := stated_value(line)) is not NotImplemented:
                assert value == stated, f"{name_of(page)}:{node.lineno}: {line.strip()}"
        else:
            exec(compile(ast.Module([node], []), name_of(page), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if page.id not in WITH_SERVER])
def test_python_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python blocks of a page run in order, in one namespace, in an empty folder."""
    for module in ("numpy", "pyarrow"):
        require(module)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.info == "python":
            run(block.text, block.line, page, names)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_escapes(page: Path) -> None:
    """Every fenced block is Python or SQL that runs, a console session, JSON or YAML that can be
    read, JavaScript that tests/integration/browser runs, or plain text."""
    peers = {f"python {peer}" for peer in PEERS} if page.name == "migrate.md" else set()
    assert {block.info for block in blocks(page)} <= LANGUAGES | peers
    for block in blocks(page):
        if block.info in ("json", "yaml"):  # JSON is YAML
            assert require("yaml").safe_load(block.text)


def make_inputs(folder: Path) -> None:
    """The files that console sessions name."""
    lines = b"".join(b"https://example.org/%d\n" % (n % 700) for n in range(1000))
    (folder / "logs").mkdir()
    (folder / "urls.txt").write_bytes(lines)
    (folder / "logs" / "a.gz").write_bytes(gzip.compress(lines))
    (folder / "today.zst").write_bytes(zstandard.compress(lines))
    make_corpus(folder)
    for name in ("cur", "new", "tmp"):
        (folder / "Maildir" / name).mkdir(parents=True)
    for number in range(7):
        mail = b"Message-ID: <%d@example.org>\n\nHello\n" % (number % 5)
        (folder / "Maildir" / "new" / f"{number}.example").write_bytes(mail)


def make_corpus(folder: Path) -> None:
    """Two files of documents, and one of test questions."""
    rights = "All rights reserved."
    question = "What is the capital of the country of France?"
    texts = {
        "in/a.jsonl.gz": [f"A first text.\n{rights}\nThe end.", f"{question}\nParis.", "Alone."],
        "in/b.jsonl.gz": [
            f"{rights}\nA second text.",
            "Other.\nThe last.",
            f"{question}\n{rights}\nA first text.",
        ],
        "tests.jsonl": [question],
    }
    (folder / "in").mkdir()
    number = 0
    for name, documents in texts.items():
        lines = []
        for text in documents:
            lines.append(json.dumps({"id": number, "text": text}) + "\n")
            number += 1
        data = "".join(lines).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.slow
def test_console_sessions_run(page: Path, tmp_path: Path) -> None:
    """Each `$ bloomery …` of a page succeeds, and prints what the page shows below it."""
    make_inputs(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    for block in blocks(page):
        if block.info != "console":
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.M):
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment, capture_output=True, timeout=60
            )
            assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
            printed = [line.rstrip() for line in done.stdout.decode().strip().splitlines()]
            expected = [line.rstrip() for line in shown.strip().splitlines()]
            assert not expected or printed == expected, command


def test_commands_on_the_first_screen() -> None:
    """The README names `make run` and `make test` in its first screen; the Makefile has both."""
    first = (TREE / "README.md").read_text("utf-8").splitlines()[:24]
    makefile = (TREE / "Makefile").read_text("utf-8")
    for target in ("run", "test"):
        assert any(line.startswith(f"make {target} ") for line in first)
        assert re.search(rf"^{target}:", makefile, re.M)


def test_there_are_examples() -> None:
    """The examples are there, are short, and the table of examples lists each."""
    table = (TREE / "examples" / "README.md").read_text("utf-8")
    assert len(EXAMPLES) >= 4
    for example in EXAMPLES:
        assert f"[{example.name}]({example.name})" in table
        most = 120 if example.name in WITH_SERVERS else 60
        assert len(example.read_text("utf-8").splitlines()) <= most, example.name


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if e.name not in WITH_SPARK], ids=lambda p: p.stem
)
@pytest.mark.slow
def test_examples_run(example: Path, tmp_path: Path) -> None:
    """Each example runs from anywhere, checks itself, and says what it found."""
    for module in ("numpy", "pyarrow"):
        require(module)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
