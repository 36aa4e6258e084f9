"""The code and the commands that make exactly the filter of a plan."""

from __future__ import annotations

import json
import shlex
from typing import Any

from bloomery.sizing.family import FamilyPlan

_CLASSES = {
    "bloom": "BloomFilter",
    "scalable": "ScalableBloomFilter",
    "counting": "CountingBloomFilter",
    "deletable": "DeletableBloomFilter",
    "cuckoo": "CuckooFilter",
    "rotating": "RotatingBloomFilter",
    "static": "StaticFilter",
    "bank": "FilterBank",
}
# What BF.RESERVE calls an option; one that it has no word for cannot be made by it.
_WORDS = {
    "counter_bits": "COUNTERBITS",
    "regions": "REGIONS",
    "generations": "GENERATIONS",
    "window": "WINDOW",
}
_USUAL: dict[str, Any] = {
    "layout": "blocked",
    "counter_bits": 4,
    "regions": None,
    "grow": False,
    "generations": 8,
    "bucket_size": 2,
}
MOST_REDIS_RATE = 0.25  # RedisBloom's own: a higher one becomes this
_NAME = "seen"


def creation(plan: FamilyPlan, window: str | None = None) -> dict[str, str | None]:
    """Each way to make the filter, as text to copy; None where there is no such way."""
    options = {name: v for name, v in plan.options.items() if name != "users"}
    if plan.kind == "rotating" and window:
        options["window"] = window
    unusual = {
        name: value
        for name, value in options.items()
        if name == "window" or name not in _USUAL or value != _USUAL[name]
    }
    return {
        "python": _python(plan, unusual),
        "command": _command(plan, unusual),
        "http": _http(plan, unusual),
        "redis": _redis(plan, unusual),
    }


def _python(plan: FamilyPlan, options: dict[str, Any]) -> str:
    kind = plan.kind
    if kind not in _CLASSES:  # RedisBloom's own live in a server
        body = {"kind": kind, **_sizes(plan), **options}
        return (
            'from bloomery import Client\n\nclient = Client("http://127.0.0.1:8100")\n'
            f"{_NAME} = client.create({json.dumps(_NAME)}, {_arguments(body)})\n"
        )
    name, call, given = _CLASSES[kind], _CLASSES[kind], {**_sizes(plan), **options}
    before = ""
    if kind == "static":
        call, before = f"{name}.build", 'keys = ["apple", "banana", "cherry"]  # all of them\n'
        return (
            f"from bloomery import {name}\n\n{before}{_NAME} = {call}(keys, {_arguments(given)})\n"
        )
    if plan.by_shape:
        call, given = f"{name}.with_shape", _shape(plan)
    return f"from bloomery import {name}\n\n{_NAME} = {call}({_arguments(given)})\n"


def _sizes(plan: FamilyPlan) -> dict[str, Any]:
    if plan.kind == "rediscuckoo":
        return {"capacity": plan.capacity}
    rate = {"error_rate": plan.error_rate}
    if plan.kind in ("static", "bank"):  # sized by the keys, or by keys_per_filter
        return rate
    first = "initial_capacity" if plan.kind == "scalable" else "capacity"
    return {first: plan.capacity, **rate}


def _shape(plan: FamilyPlan) -> dict[str, Any]:
    shape = {"num_bits": plan.num_bits, "num_hashes": plan.num_hashes}
    if plan.kind == "counting":
        return {**shape, "counter_bits": plan.options["counter_bits"]}
    shape["layout"] = plan.options["layout"]
    if plan.lines_per_key:
        shape["lines_per_key"] = plan.lines_per_key
    return {**shape, "capacity": plan.capacity}


def _arguments(given: dict[str, Any]) -> str:
    def literal(value: Any) -> str:
        return f"{value:_}" if type(value) is int else json.dumps(value).replace("true", "True")

    return ", ".join(f"{name}={literal(value)}" for name, value in given.items())


def _command(plan: FamilyPlan, options: dict[str, Any]) -> str | None:
    kind = plan.kind
    if kind not in _CLASSES:
        return None  # `bloomery create` makes files, and these are a server's
    words = ["bloomery", "create", f"{_NAME}.bloom"]
    if kind != "bloom":
        words += ["--kind", kind]
    given = _shape(plan) if plan.by_shape else {**_sizes(plan), **options}
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
            continue
        option = "capacity" if name == "initial_capacity" else name.replace("_", "-")
        words += [f"--{option}", str(value)]
    return shlex.join(words) + (" < keys.txt" if kind == "static" else "")


def request_body(plan: FamilyPlan, options: dict[str, Any]) -> dict[str, Any] | None:
    """The body of POST /filters; None where only a file can be loaded."""
    if plan.by_shape or plan.kind == "static":
        return None
    body: dict[str, Any] = {"name": _NAME, "kind": plan.kind}
    if plan.kind == "bank":
        return {**body, "capacity": options["keys_per_filter"], "error_rate": plan.error_rate}
    body["capacity"] = plan.capacity
    if plan.kind != "rediscuckoo":
        body["error_rate"] = plan.error_rate
    return {**body, **options}


def _http(plan: FamilyPlan, options: dict[str, Any]) -> str:
    server = "http://127.0.0.1:8100"
    body = request_body(plan, options)
    if body is None:
        return f"curl -X PUT --data-binary @{_NAME}.bloom {server}/filters/{_NAME}/file"
    return (
        f"curl -X POST {server}/filters -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(body))}"
    )


def _redis(plan: FamilyPlan, options: dict[str, Any]) -> str | None:
    body = request_body(plan, options)
    if body is None or plan.kind not in _CLASSES or plan.kind == "bank":
        return None
    if not set(options) <= set(_WORDS) or plan.error_rate > MOST_REDIS_RATE:
        return None
    words = [_NAME, repr(plan.error_rate), str(plan.capacity), "KIND", plan.kind]
    for name, value in options.items():
        words += [_WORDS[name], str(value)]
    return shlex.join(["redis-cli", "-p", "6380", "BF.RESERVE", *words])
