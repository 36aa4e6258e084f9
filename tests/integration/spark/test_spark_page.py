"""What docs/spark.md and the example show happens, in the JVM of the other tests."""

import runpy
from typing import Any

import pytest

from docs.pages import DOCS, TREE, blocks
from docs.test_examples import run


@pytest.mark.usefixtures("spark")
def test_the_page_runs() -> None:
    """The Python blocks of the page run in order, and give what they say."""
    names: dict[str, object] = {"__name__": "__main__"}
    shown = [block for block in blocks(DOCS / "spark.md") if block.info == "python"]
    for block in shown:
        run(block.text, block.line, DOCS / "spark.md", names)
    assert len(shown) >= 6


def test_the_example_runs(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The example checks itself, says what it found, and leaves the settings as they were."""
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    runpy.run_path(str(TREE / "examples" / "spark_join.py"), run_name="__main__")
    assert "orders joined; jvm: a filter of" in capsys.readouterr().out
    assert spark.conf.get("spark.sql.autoBroadcastJoinThreshold") == before
