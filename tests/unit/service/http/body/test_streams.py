"""Streams where a server cannot read them."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bloomery.service.config.settings import Settings
from bloomery.service.http.body import streams


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without pyarrow answers an Arrow stream with a 415 that says which extra it lacks,
    and what it takes instead."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    context: Any = SimpleNamespace(settings=Settings())
    scope = {"headers": [(b"content-type", streams.ARROW.encode())], "query_string": b""}
    response = asyncio.run(streams.answer(context, "add", b"seen", scope, None))
    told = json.loads(bytes(response.body))
    assert response.status_code == told["status"] == 415
    assert told["code"] == "missing-extra"
    assert "bloomery[arrow]" in told["detail"]
    assert streams.NDJSON in told["detail"]
