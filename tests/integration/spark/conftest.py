"""One JVM for all tests of Spark: it takes seconds to start, and more than a GB of memory.

Under xdist the tests of a folder are spread over its workers. So there one test, in
test_one_process.py, runs all others in a process of its own; without xdist they run as they are.
"""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conftest import missing, require

FOLDER = Path(__file__).parent
HAS_CONNECT = find_spec("grpc_status") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose between the tests and the one that runs them; PySpark warns of a pandas it does not
    know yet."""
    spread = "PYTEST_XDIST_WORKER" in os.environ
    left = []
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            if (item.path.name == "test_one_process.py") != spread:
                left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where Spark Connect answers, in the same JVM, if its client's packages are installed."""
    return free_port()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, connect_port: int) -> Iterator[Any]:
    """A session of Spark on two cores, without its web pages, in at most 1.2 GB of heap."""
    require("pyspark")
    if shutil.which("java") is None:
        missing("java")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1200m",
        # Seconds of work: the better compiler would only be in its way.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    if HAS_CONNECT:
        settings["spark.plugins"] = "org.apache.spark.sql.connect.SparkConnectPlugin"
        settings["spark.connect.grpc.binding.address"] = "127.0.0.1"
        settings["spark.connect.grpc.binding.port"] = str(connect_port)
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def shuffled(spark: Any) -> Iterator[None]:
    """No side of a join is broadcast, however small."""
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
