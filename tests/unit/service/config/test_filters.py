"""Filters of a configuration file: what is right, and what is wrong and where."""

from pathlib import Path

import pytest

from bloomery.service.config.configuration import Configuration, read

RIGHT = """
[filters.seen]
capacity = 1_000_000
error_rate = 0.01
policy = "reject"
source = "urls"

[filters."user:42 \\\\xff"]
kind = "rotating"
capacity = 1000
window = "7d"
seed = 42

[filters.also]
capacity = 5
error-rate = 0.1
on_full = "alert"
warn-at = 0.9

[sources.urls]
url = "sqlite:///urls.db"
table = "urls"
key = "url"
"""


def configured(folder: Path, text: str, **environment: str) -> Configuration:
    file = folder / "bloomery.toml"
    file.write_text(text)
    return read(file=file, environment=environment)


def test_every_parameter_of_http_can_be_given(tmp_path: Path) -> None:
    """The parameters are as HTTP takes them, `policy` is on_full, and a name may be any bytes."""
    found = configured(tmp_path, RIGHT)
    assert found.problems == []
    assert found.filters == {
        b"seen": {
            "capacity": 1_000_000,
            "error_rate": 0.01,
            "on_full": "reject",
            "source": "urls",
        },
        b"user:42 \xff": {"kind": "rotating", "capacity": 1000, "window": "7d", "seed": 42},
        b"also": {"capacity": 5, "error_rate": 0.1, "on_full": "alert", "warn_at": 0.9},
    }
    assert found.declared()["user:42 \\xff"]["seed"] == "***"


WRONG: list[tuple[str, int, str]] = [
    ("error_rate = 0.1", 2, "capacity is missing"),
    ("capacity = 10\ncapcity = 10", 4, "capcity: there is no such field; did you mean capacity?"),
    ("\ncapacity = '10'", 4, "capacity is '10', must be a valid integer"),
    ("capacity = 0", 3, "capacity is '0', must be greater than or equal to 1"),
    ("capacity = 1\nerror-rate = 7", 4, "error_rate is '7', must be less than or equal to"),
    ("capacity = 1\npolicy = 'grwo'", 4, "policy is 'grwo', must be 'grow', 'rotate', 'reject'"),
    ("capacity = 1\non_full = 1\npolicy = 'grow'", 5, "policy is there twice"),
    ("capacity = 1\nkind = 'blom'", 4, "kind is 'blom', must be one of bloom, scalable"),
    ("capacity = 1\nwindow = '7d'", 4, "window goes with kind rotating"),
    ("capacity = 1\nname = 'x'", 4, "name is that of the section: [filters.seen]"),
    ("capacity = 1\nsource = 'urls'", 4, "source is 'urls', must be one of the sections"),
    ("capacity = 1\nkind = 'bloom'\npolicy = 'grow'", 2, "make one of kind scalable or cuckoo"),
]


@pytest.mark.parametrize(("section", "line", "why"), WRONG)
def test_what_is_wrong_names_the_field_and_the_line(
    tmp_path: Path, section: str, line: int, why: str
) -> None:
    """One line each: the file, the line, the filter, what was given and what would be right."""
    found = configured(tmp_path, f"\n[filters.seen]\n{section}\n[filters.other]\ncapacity = 1")
    (problem,) = found.problems
    assert problem.startswith(f"{tmp_path}/bloomery.toml:{line}: filters.seen: ")
    assert why in problem
    assert list(found.filters) == [b"other"]


@pytest.mark.parametrize("filters", ["filters = 5", "[filters]\nseen = 5", "[filter.seen]\na = 1"])
def test_filters_are_sections(tmp_path: Path, filters: str) -> None:
    """What is no section is refused."""
    (problem,) = configured(tmp_path, filters).problems
    assert "section" in problem or "must be a" in problem or "there is no setting" in problem
