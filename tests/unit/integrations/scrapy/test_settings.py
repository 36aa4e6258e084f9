"""Settings of a Scrapy project: wrong ones are refused before anything is crawled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from bloomery.errors import InvalidConfiguration
from bloomery.integrations.scrapy import BloomDupeFilter, JobScheduler
from bloomery.integrations.scrapy.settings import read_settings

OURS = {
    "SCHEDULER": "bloomery.integrations.scrapy.JobScheduler",
    "DUPEFILTER_CLASS": "bloomery.integrations.scrapy.BloomDupeFilter",
}


def test_settings_come_as_text_too() -> None:
    """`-s NAME=VALUE` and files give text; both forms mean the same."""
    given = {"BLOOMERY_CAPACITY": "1e6", "BLOOMERY_ERROR_RATE": "0.1%", "BLOOMERY_EXACT": "false"}
    settings = read_settings(get_crawler(settings_dict=given))
    assert (settings.capacity, settings.error_rate, settings.exact) == (1_000_000, 0.001, False)
    assert settings.name == "scrapy:test:seen" or settings.name.startswith("scrapy:")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"BLOOMERY_CAPACITY": "many"}, "BLOOMERY_CAPACITY is 'many'"),
        ({"BLOOMERY_CAPACITY": 0}, "BLOOMERY_CAPACITY is 0"),
        ({"BLOOMERY_CAPACITY": 1.5}, "whole number"),
        ({"BLOOMERY_ERROR_RATE": 2}, "BLOOMERY_ERROR_RATE is 2"),
        ({"BLOOMERY_EXACT": "maybe"}, "must be True or False"),
        ({"BLOOMERY_URL": "ftp://host"}, "must be http://host:port"),
        ({"BLOOMERY_QUEUE": "random"}, "must be 'lifo'"),
        ({"BLOOMERY_CAPACTY": 5}, "did you mean BLOOMERY_CAPACITY?"),
        ({"BLOOMERY_EXACT": True}, "set JOBDIR"),
        ({"BLOOMERY_EXACT": True, "JOBDIR": "x", "BLOOMERY_URL": "http://h"}, "no exact sets"),
    ],
)
def test_each_wrong_setting_is_named(given: dict[str, Any], message: str) -> None:
    """The message has the setting, what it is, and what would be right."""
    with pytest.raises(InvalidConfiguration) as caught:
        read_settings(get_crawler(settings_dict=given))
    assert message in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Two mistakes are two lines."""
    given = {"BLOOMERY_CAPACITY": -1, "BLOOMERY_QUEUE": ""}
    with pytest.raises(InvalidConfiguration) as caught:
        read_settings(get_crawler(settings_dict=given))
    assert len(caught.value.problems) == 2


def test_a_scheduler_without_what_it_needs() -> None:
    """It names the setting that is missing."""
    with pytest.raises(InvalidConfiguration, match="needs JOBDIR"):
        JobScheduler.from_crawler(get_crawler(settings_dict=OURS))
    given = {"SCHEDULER": OURS["SCHEDULER"], "JOBDIR": "x"}
    with pytest.raises(InvalidConfiguration, match="needs DUPEFILTER_CLASS"):
        JobScheduler.from_crawler(get_crawler(settings_dict=given))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"BLOOMERY_CAPACITY": 2000}, "begun with 1000"),
        ({}, {"BLOOMERY_EXACT": True}, "begun without BLOOMERY_EXACT"),
        ({"BLOOMERY_EXACT": True}, {}, "begun with BLOOMERY_EXACT"),
    ],
)
def test_a_job_goes_on_as_it_was_begun(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    """Other settings in the same JOBDIR are refused: they would know of no request before."""
    common: dict[str, Any] = {"JOBDIR": str(tmp_path), "BLOOMERY_CAPACITY": 1000}
    made = BloomDupeFilter.from_crawler(get_crawler(settings_dict=common | first))
    made.close("finished")
    with pytest.raises(InvalidConfiguration, match=message):
        BloomDupeFilter.from_crawler(get_crawler(settings_dict=common | second))
