"""Sources of a configuration file: what is right, what is wrong and where, and no secret shown."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from bloomery.cli.server import check
from bloomery.service.config.configuration import Configuration, read
from bloomery.service.lookup.keytypes import TypedSource

RIGHT = """
maxmemory = "1gb"

[sources.urls]
url = "postgresql://app@db:5433/urls?sslmode=require"
password-file = "secret"
table = "public.urls"
key = "url"
value = ["title", "seen"]
cache-url-env = "CACHE_URL"
ttl = "5min"
negative_ttl = 0
on-outage = "stale"
timeout = 0.5

[sources.users]
url = "sqlite:///users.db"
query = "SELECT id FROM users WHERE id IN :keys"
key-type = "integer"
cache = "none"
"""


def configured(folder: Path, text: str, **environment: str) -> Configuration:
    file = folder / "bloomery.toml"
    file.write_text(text)
    return read(file=file, environment=environment)


def test_sources_are_read_with_their_secrets(tmp_path: Path) -> None:
    """Passwords come from files and the environment; paths are relative to the file's folder."""
    (tmp_path / "secret").write_text("p@ss/word\n")
    found = configured(tmp_path, RIGHT, CACHE_URL="redis://:hidden@cache:6379/1")
    assert found.problems == []
    urls, users = found.sources["urls"], found.sources["users"]
    assert urls.url == "postgresql+psycopg://app:p%40ss%2Fword@db:5433/urls?sslmode=require"
    assert (urls.ttl, urls.negative_ttl, urls.timeout) == (300, 0, 0.5)
    assert (urls.table, urls.value, urls.on_outage) == ("public.urls", ["title", "seen"], "stale")
    assert urls.cache == "redis://:hidden@cache:6379/1"
    assert users.url == f"sqlite:///{tmp_path}/users.db"
    assert users.as_dict()["url"] == users.url
    assert (users.key_type, users.cache, users.secrets()) == ("integer", "none", [])


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """What is told of a source has neither its password nor that of its cache."""
    (tmp_path / "secret").write_text("p@ss/word")
    found = configured(tmp_path, RIGHT, CACHE_URL="redis://:hidden@cache:6379/1")
    urls = found.sources["urls"]
    for text in (repr(found), repr(urls), str(urls.as_dict())):
        assert "ss/word" not in text
        assert "p%40ss" not in text
        assert "hidden" not in text
    assert urls.as_dict()["url"] == "postgresql+psycopg://db:5433/urls"
    assert {"p%40ss%2Fword", "hidden"} <= set(found.secrets())


def test_all_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    """Each problem has the line of its field, and says what is right."""
    text = """
[sources.one]
url = "postgresql://app:letmein@db/urls"
table = "urls"
tabel = "urls"
key = ""
ttl = "soon"
connections = 0
password-env = "NOT_SET"

[sources.two]
url = "db/urls"
query = "SELECT url FROM urls"
value = "title"
cache = "memcached://cache"
password = "letmein"

[sources.three]
table = "urls"
on-outage = "queue"
cache = "none"

[sources.Four]
[sources.five]
url = "sqlite:///"
password-file = "missing"
cache = "redis://:letmein@cache"
"""
    found = configured(tmp_path, text)
    file = tmp_path / "bloomery.toml"
    expected = [
        (5, "one", "a source has no 'tabel'; did you mean table?"),
        (6, "one", "key is '', must be text in quotes"),
        (7, "one", "ttl is 'soon', must be seconds, or a time such as '15min'"),
        (8, "one", "connections is '0', must be in the range [1, 256]"),
        (3, "one", "url has a password in it, which must not be in this file: leave it out and"),
        (16, "two", "password must not be in this file: give password-file"),
        (12, "two", "url must be one such as postgresql://user@host/database"),
        (15, "two", "cache must be local, none, or a URL: redis://host:6379/0, say"),
        (14, "two", "value goes with table"),
        (13, "two", "query must have :keys in it"),
        (18, "three", "url is missing"),
        (19, "three", "key is missing"),
        (20, "three", "on-outage is queue, which needs a cache"),
        (23, "Four", "a source's name must be 1 to 64 of a-z, 0-9, - and _"),
        (25, "five", "url names no file, must be sqlite:///path"),
        (27, "five", "cache has a password in it"),
        (24, "five", "give table and key, or query"),
    ]
    assert len(found.problems) == len(expected)
    for problem, (line, name, words) in zip(found.problems, expected, strict=True):
        assert problem.startswith(f"{file}:{line}: sources.{name}: {words}"), problem
        assert "letmein" not in problem
    assert found.sources == {}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ('url-env = "NOT_SET"', "url-env is 'NOT_SET', must be a variable that is set"),
        ('url-file = "missing"', "url-file is 'missing', must be a file that can be read: No such"),
        ('url-file = "empty"', "url-file is 'empty', which is empty"),
        ('url-file = "whole"\nurl-env = "A"', "url is there twice: give url-file or url-env"),
        ('url-file = "whole"\nurl = "sqlite:///a"', "url is there twice"),
        ('url-file = "whole"\npassword-env = "A"', "password is given, but the URL has one"),
        ('url = "sqlite:///a"\npassword-env = "A"', "password is given, but this URL takes none"),
        ("url = 3", "url must be a URL in quotes"),
    ],
)
def test_secrets_that_cannot_be_had(tmp_path: Path, fields: str, words: str) -> None:
    """A secret that is missing, empty or there twice is a problem, told without it."""
    (tmp_path / "whole").write_text("postgresql://app:hidden@db/urls")
    (tmp_path / "empty").write_text("\n")
    text = f'[sources.a]\ntable = "t"\nkey = "k"\n{fields}\n'
    (problem,) = configured(tmp_path, text, A="hidden").problems
    assert words in problem
    assert "hidden" not in problem


def test_check_shows_sources_and_what_is_wrong_with_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`serve --check` says what a source is, without its password, and which driver is missing."""
    text = f"""
data = "{tmp_path}/data"
resp-port = 0
http-port = 0
[sources.right]
url-env = "URL"
table = "urls"
key = "url"
[sources.wrong]
url = "nosuchdb://db/urls"
table = "urls"
key = "url"
"""
    found = configured(tmp_path, text, URL="postgresql://app:hidden@db/urls")
    assert found.problems == []
    assert check.show(found, as_json=True) == 2
    told = json.loads(capfd.readouterr().out)
    assert told["sources"]["right"]["url"] == "postgresql+psycopg://db/urls"
    (problem,) = told["problems"]
    assert problem.startswith("sources.wrong: ")
    check.show(found, as_json=False)
    shown = "".join(capfd.readouterr())
    assert "sources.right" in shown
    assert "hidden" not in shown + str(told)


class Column:
    """A source that holds some keys, and notes what it is asked for."""

    name = "column"

    def __init__(self, *held: object) -> None:
        self.held = held
        self.asked: list[object] = []

    def get_many(self, keys: list[object]) -> dict[object, str]:
        self.asked += keys
        return {key: f"value of {key}" for key in keys if key in self.held}


@pytest.mark.parametrize(
    ("key_type", "held", "there", "absent"),
    [
        (
            "integer",
            42,
            [b"42", "42", 42],
            [b"042", b"+42", b"4 2", b"\xff", "x", (42,), b"9" * 99],
        ),
        ("text", "é7", ["é7", "é7".encode()], [b"\xff", 7, (1,)]),
        ("uuid", UUID(int=7), [UUID(int=7), str(UUID(int=7)).encode()], [b"7", 7, "", b"\xff"]),
        ("bytes", b"\xff", [b"\xff"], ["ff", 255]),
    ],
)
def test_keys_become_what_the_column_holds(
    key_type: str, held: object, there: list[object], absent: list[object]
) -> None:
    """A key is asked for as the column's type, and answered as it was given."""
    column = Column(held)
    found = TypedSource(column, key_type).get_many([*there, *absent])
    assert list(found) == there
    assert {type(key) for key in column.asked} == {type(held)}


@pytest.mark.parametrize("password", ["pa#ss", "pa/ss", "pa?ss", "pa:ss"])
def test_passwords_with_signs_of_urls(tmp_path: Path, password: str) -> None:
    """SQLAlchemy takes them as they are; a URL's other readers would show them as host or path."""
    url = f"postgresql://app:{password}@db/urls"
    text = '[sources.urls]\ntable = "urls"\nkey = "url"\n'
    found = configured(tmp_path, f'{text}url-env = "WHOLE"', WHOLE=url)
    urls = found.sources["urls"]
    assert urls.as_dict()["url"] == "postgresql+psycopg://db/urls"
    assert password in found.secrets()
    (problem,) = configured(tmp_path, f'{text}url = "{url}"').problems
    assert "has a password in it" in str(problem)
    assert "pa" not in str(problem).replace("password", "").replace("path", "")


def test_a_secret_that_is_no_url(tmp_path: Path) -> None:
    """It is a problem, told without it."""
    text = '[sources.urls]\ntable = "urls"\nkey = "url"\nurl-env = "WHOLE"\n'
    (problem,) = configured(tmp_path, text, WHOLE="postgresql://app:hidden@[db/urls").problems
    assert "must be a URL" in str(problem)
    assert "hidden" not in str(problem)
