"""The peer of HTTP: a FastAPI endpoint that returns a constant, on uvicorn and the same loop.

A process of its own: `python -m benchmarks.running.constant` prints its port and serves.
"""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.post("/constant")
async def constant() -> dict[str, bool]:
    """Say yes to everything."""
    return {"maybe": True}


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", access_log=False, log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listening])
