"""The parts of a server that commands of the Redis protocol use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bloomery.service.access.audit import Audit
from bloomery.service.access.authentication import Access
from bloomery.service.background import Background
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from bloomery.service.live_configuration import LiveConfiguration
from bloomery.service.network.input_budget import InputBudget
from bloomery.service.observe.logs import Say
from bloomery.service.policy.rebuilds import Rebuilds
from bloomery.service.registry.writer import RegistryWriter
from bloomery.service.replication.node import Node

__all__ = ["RespContext"]


@dataclass(frozen=True, slots=True, eq=False)
class RespContext:
    """What the server hands to its clients of the Redis protocol, and to their commands."""

    settings: Settings
    live: LiveConfiguration
    data: Path
    address: Callable[[], str]  # that clients connect to; "" before the server listens
    started: float  # Unix time
    recovered_rows: int  # of the log, when the server started
    problems: list[str]  # that were found then
    say: Say
    access: Access
    audit: Audit
    input_budget: InputBudget
    engine: Engine
    commands: Commands
    group_commit: GroupCommit
    background: Background
    snapshots: SnapshotSchedule
    rebuilds: Rebuilds
    registry: RegistryWriter
    node: Node | None  # with a store
