"""The OpenAPI document and the server agree: schemathesis asks what the document says can be asked,
and much that it says cannot."""

import subprocess
import sys
from pathlib import Path

import pytest

from integration.http.asking import Http
from integration.servers import Serve

# A 422 to what fits the document is right where the rules are none that JSON Schema can say: which
# policy suits a kind, which kinds take only strings as keys, what is a saved filter, and which
# filter is bound to a source.
CONFIG = """
seed = {seed}
[generation]
max-examples = {examples}
[[operations]]
include-operation-id-regex = "^(add|change|contains|create|forget|lookup|put|rebuild|remove)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "422"]
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "examples"),
    [(5, 4), *(pytest.param(seed, 200, marks=pytest.mark.soak) for seed in range(3))],
)
def test_the_server_keeps_to_its_document(
    serve: Serve, tmp_path: Path, seed: int, examples: int
) -> None:
    """No server error, no status, type or body that the document does not have, nothing taken that
    it forbids, nothing refused that it allows; and the server is there afterwards."""
    server = serve("--set", "max-capacity=10000")
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.format(seed=seed, examples=examples))
    with Http(server) as http:
        for kind in ("bloom", "counting", "rotating"):
            http.create(kind, 1000, kind=kind)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
                *(f"{http.client.base_url}/openapi.json", "--checks", "all", "--no-color"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert "Stateful" in done.stdout
        http.ask("GET", "/filters")
    assert "Traceback" not in server.printed()
