"""The parts of a server that endpoints of HTTP use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

from bloomery.service.access.audit import Audit
from bloomery.service.access.authentication import Access
from bloomery.service.access.permissions import User
from bloomery.service.background import Background
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.durability.backup import Backups
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from bloomery.service.network.input_budget import InputBudget
from bloomery.service.policy.alerts import Alerts
from bloomery.service.policy.rebuilds import Rebuilds
from bloomery.service.replication.node import Node
from bloomery.service.sampling.sampler import Sampler

__all__ = ["HttpContext"]


@dataclass(frozen=True, slots=True, eq=False)
class HttpContext:
    """What the server hands to its endpoints, once its filters are loaded."""

    settings: Settings
    data: Path
    access: Access
    audit: Audit
    input_budget: InputBudget
    engine: Engine
    commands: Commands
    group_commit: GroupCommit
    background: Background
    snapshots: SnapshotSchedule
    backups: Backups
    rebuilds: Rebuilds
    sampler: Sampler
    alerts: Alerts
    node: Node | None  # with a store
    metrics: Callable[[User], bytes]  # those that this user may see, as Prometheus reads them
    exports: WeakSet[Any] = field(default_factory=WeakSet)  # files that are sent
