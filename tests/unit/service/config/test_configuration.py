"""Configuration: which place is strongest, and what is said of everything that is wrong."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.config.configuration import Configuration, RawSetting, read, rewrite
from bloomery.service.config.settings import HIDDEN, Settings, like, plain
from docs.pages import DOCS, TREE, blocks

# A value of each setting that is not its default, and how it is told.
OTHER = {
    "data": "/srv/elsewhere",
    "host": "::1",
    "http-hosts": "filters.example.org,*.example.net",
    "registry": "sqlite:////tmp/r.sqlite",
    "store": "redis://127.0.0.1:6379",
    "store-prefix": "others",
    "store-cluster": "eu",
    "store-consistency": "strong",
    "tls-cert": "/etc/cert.pem",
    "tls-key": "/etc/key.pem",
    "insecure": "yes",
    "bf-layout": "redisbloom",
    "bf-error-rate": "0.001",
    "fsync": "always",
    "log-format": "json",
    "log-level": "debug",
    "webhook-url": "https://example.org/hook",
    "webhook-secret": "0123456789abcdef",
}


def write(folder: Path, text: str | bytes) -> Path:
    """A configuration file."""
    path = folder / "bloomery.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(found: Configuration) -> str:
    """All that is wrong, a line each."""
    return "\n".join(found.problems)


def test_without_anything_it_is_the_defaults() -> None:
    """No file, no variable, no flag: every setting is its default, and says so."""
    found = read(environment={})
    assert found.require() == Settings(data=os.path.abspath("bloomery-data"))
    assert {found.origin(name) for name in found.settings.names()} == {"default"}
    assert found.file is None


def test_flags_then_environment_then_file(tmp_path: Path) -> None:
    """Of three places that set one thing the strongest wins, and each value knows its place."""
    path = write(tmp_path, "timeout = 1\nmaxclients = 2\nmax-filters = 3\n")
    around = {"BLOOMERY_TIMEOUT": "10", "BLOOMERY_MAXCLIENTS": "20"}
    found = read([RawSetting("timeout", "100", "--set timeout")], file=path, environment=around)
    settings = found.require()
    assert (settings.timeout, settings.maxclients, settings.max_filters) == (100, 20, 3)
    assert found.origin("timeout") == "--set timeout"
    assert found.origin("maxclients") == "BLOOMERY_MAXCLIENTS"
    assert found.origin("max-filters") == f"{path}:3"


@given(st.lists(st.tuples(st.sampled_from("fe"), st.integers(0, 1000)), max_size=6))
def test_the_strongest_place_wins(places: list[tuple[str, int]]) -> None:
    """Whatever is set where, a flag beats a variable, and the last flag the ones before it."""
    flags = [RawSetting("timeout", str(value), "flag") for kind, value in places if kind == "f"]
    variables = [str(value) for kind, value in places if kind == "e"]
    around = {"BLOOMERY_TIMEOUT": variables[-1]} if variables else {}
    expected = flags[-1].text if flags else around.get("BLOOMERY_TIMEOUT", "0")
    assert read(flags, environment=around).settings.get("timeout") == expected


@pytest.mark.parametrize("item", fields(Settings), ids=lambda item: plain(item.name))
def test_every_setting_by_file_environment_and_flag(tmp_path: Path, item: object) -> None:
    """Each setting can be given in all three places, by the name that belongs to the place."""
    name = plain(item.name)  # type: ignore[attr-defined]
    default = Settings().get(name)
    text = OTHER.get(name, default)
    if text.isdecimal():
        text = str(int(text) - 1 if int(text) > 1 else int(text) + 1)
    assert text, f"say in OTHER what {name} may be"
    shown = HIDDEN if item.metadata["secret"] else text  # type: ignore[attr-defined]
    alone = name in {"tls-cert", "tls-key", "webhook-url"}  # which takes another one
    variable = f"BLOOMERY_{name.upper().replace('-', '_')}"
    by_file = write(tmp_path, f'{name} = "{text}"\n')
    for found in (
        read([RawSetting(name, text, "flag")], environment={}),
        read(environment={variable: text}),
        read(file=by_file, environment={}),
        read(environment={"BLOOMERY_CONFIG": str(by_file)}),
    ):
        assert found.problems == [] or alone
        assert found.settings.get(name) == shown
        assert found.origin(name) != "default"


def test_types_of_toml(tmp_path: Path) -> None:
    """Numbers, text with a unit, and true and false are taken as they are meant."""
    path = write(
        tmp_path,
        'maxmemory = "4gb"\nbf-error-rate = 0.001\ninsecure = true\nmax_filters = 1_000\n',
    )
    settings = read(file=path, environment={}).require()
    assert settings.maxmemory == 4 << 30
    assert settings.bf_error_rate == 0.001
    assert settings.insecure is True
    assert settings.max_filters == 1000


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Every wrong thing is told, with its place, what was given, and what is right."""
    path = write(
        tmp_path,
        "# a comment\nmaxmemroy = 1\ntimeout = -1\nfsync = []\n[bf]\nerror-rate = 0.1\n",
    )
    around = {"BLOOMERY_MAX_FILTRES": "3", "BLOOMERY_MAXCLIENTS": "many"}
    flags = [
        RawSetting("log-format", "xml", "--log-format"),
        RawSetting("maxmemory", "4 quux", "--maxmemory"),
        RawSetting("nosuch", "1", "--set nosuch"),
    ]
    found = read(flags, file=path, environment=around)
    with pytest.raises(errors.InvalidConfiguration) as caught:
        found.require()
    assert caught.value.problems == found.problems
    expected = [
        (f"{path}:2: ", "'maxmemroy'; did you mean maxmemory?"),
        (f"{path}:3: ", "timeout is '-1', must be in the range [0, 2147483648]"),
        (f"{path}:4: ", "'fsync' must be a number, yes or no, or text in quotes, not a list"),
        (f"{path}:5: ", "'bf' is a section, must be a setting"),
        ("BLOOMERY_MAXCLIENTS: ", "maxclients is 'many'"),
        ("BLOOMERY_MAX_FILTRES: ", "did you mean max-filters?"),
        ("--log-format: ", "log-format is 'xml', must be one of text, json"),
        ("--maxmemory: ", "of bytes: 4096, 512mb or 4gb, say"),
        ("--set nosuch: ", "there is no setting named 'nosuch'"),
    ]
    assert len(found.problems) == len(expected)
    for problem, (place, what) in zip(sorted(found.problems), sorted(expected), strict=True):
        assert problem.startswith(place)
        assert what in problem


def test_what_does_not_fit_together() -> None:
    """A certificate without its key, one port for both doors, a webhook that nothing is signed for,
    and cuckoo filters too small for their buckets are each refused where they were written."""
    found = read(
        [
            RawSetting("tls-cert", "c.pem", "--tls-cert"),
            RawSetting("resp-port", "8100", "--resp-port"),
            RawSetting("webhook-url", "https://example.org/hook", "--set webhook-url"),
            RawSetting("cf-bucket-size", "200", "--set cf-bucket-size"),
            RawSetting("cf-initial-size", "10", "--set cf-initial-size"),
        ],
        environment={},
    )
    assert "--tls-cert: tls-cert is set and tls-key is not" in problems(found)
    assert "--set webhook-url: webhook-url is set and webhook-secret is not" in problems(found)
    assert "http-port is 8100, and so is resp-port" in problems(found)
    assert "--set cf-initial-size: cf-initial-size is 10" in problems(found)
    same = [RawSetting("resp-port", "0", "f"), RawSetting("http-port", "0", "f")]
    assert read(same, environment={}).problems == []


def test_variables_of_others() -> None:
    """An unknown variable is a problem if it is nearly a setting's name, else a warning; what is
    empty, Kubernetes's or not ours is neither."""
    around = {
        "BLOOMERY_SERVICE_HOST": "10.0.0.1",
        "BLOOMERY_SERVICE_PORT_RESP": "6380",
        "BLOOMERY_PORT": "tcp://10.0.0.1:6380",
        "BLOOMERY_PORT_6380_TCP_ADDR": "10.0.0.1",
        "BLOOMERY_TIMEOUT": "",
        "REDIS_TIMEOUT": "x",
        "_BLOOMERY_COMPLETE": "bash",
        "BLOOMERY_WHEEL": "a.whl",
    }
    found = read(environment=around)
    assert found.problems == []
    assert found.warnings == ["BLOOMERY_WHEEL: there is no setting named 'wheel'"]


def test_secrets(tmp_path: Path) -> None:
    """A secret comes from the environment or from a file that it names, and is never shown."""
    url = "postgresql://u:hunter22@h/d"
    (tmp_path / "url").write_text(f"{url}\n")
    path = write(tmp_path, 'registry-file = "url"\n')
    for found in (
        read(file=path, environment={}),
        read(environment={"BLOOMERY_REGISTRY": url}),
        read(environment={"BLOOMERY_REGISTRY_FILE": str(tmp_path / "url")}),
    ):
        assert found.require().registry == url
        assert found.settings.get("registry") == HIDDEN
        assert found.settings.secrets() == [url]
        assert "hunter22" not in repr(found)
    wrong = read(environment={"BLOOMERY_REGISTRY": "hunter22\n"})
    assert "registry is ***" in problems(wrong)
    missing = read(environment={"BLOOMERY_REGISTRY_FILE": "/no/such"})
    assert "registry-file is '/no/such', must be a file that can be read" in problems(missing)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path of a file is in the file's folder; that of a flag where the command runs."""
    path = write(tmp_path, 'data = "data"\ntls-cert = "c.pem"\ntls-key = "/k.pem"\n')
    settings = read(file=path, environment={}).require()
    assert settings.data == str(tmp_path / "data")
    assert settings.tls_cert == str(tmp_path / "c.pem")
    assert settings.tls_key == "/k.pem"
    monkeypatch.chdir(tmp_path)
    assert (
        read([RawSetting("data", "d", "--data")], environment={}).settings.data == f"{tmp_path}/d"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\x01\x00\xff", "not UTF-8"),
        (b"\x00\x01\x02", "not TOML"),
        (b"maxmemory = 4gb\n", "line 1"),
        (b"a = 1\n" * 100_000, "bytes, must be a text file"),
        (b"x = " + b"[" * 50_000, "not TOML"),
        (b"timeout = " + b"9" * 5_000, "not TOML"),
        (b"timeout = 1\ntimeout = 2\n", "line 2"),
        (b"timeout = 1\nTimeout = 2\n", "there twice"),
        (b"timeout = 2026-01-01\n", "must be a number"),
        (b"timeout = nan\n", "timeout is 'nan'"),
        (b"[[timeout]]\n", "timeout"),
    ],
    ids=lambda value: str(value[:12]),
)
def test_hostile_files(tmp_path: Path, content: bytes, said: str) -> None:
    """A file that is binary, huge, nested or simply wrong is one clear problem."""
    path = write(tmp_path, content)
    found = read(file=path, environment={})
    (problem,) = found.problems
    assert problem.startswith(str(path))
    assert said in problem
    assert len(problem) < 400


def test_files_that_are_none(tmp_path: Path) -> None:
    """A file that is not there, is a folder, or never ends is a problem that names it."""
    for path, said in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (Path("/dev/zero"), "must be a text file"),
    ):
        (problem,) = read(file=path, environment={}).problems
        assert problem.startswith(str(path))
        assert said in problem


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """No file whatever raises anything: it is taken, or there is a line that says why not."""
    path = write(tmp_path_factory.mktemp("hostile"), content)
    found = read(file=path, environment={})
    for problem in found.problems:
        assert problem.startswith(str(path))
        assert problem.isprintable()


def test_did_you_mean() -> None:
    """A name that is nearly right gets the right one, and one that is nothing like it none."""
    assert like("max_memory") == "; did you mean maxmemory?"
    assert "tls-cert" in like("tls-certs")
    assert like("qqqqqq") == ""


def test_the_example() -> None:
    """deploy/bloomery.toml is right, and sets what it seems to."""
    example = read(file=TREE / "deploy" / "bloomery.toml", environment={})
    assert example.problems == []
    assert example.settings.data == "/var/lib/bloomery"
    assert example.settings.maxmemory == 6 << 30


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    """Each TOML block of docs/configuration.md is a right file."""
    shown = [block for block in blocks(DOCS / "configuration.md") if block.info == "toml"]
    assert shown
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "urls").write_text("the password")
    for block in shown:
        assert read(file=write(tmp_path, block.text), environment={}).problems == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a comment alone",
        '"timeout" = 5 # quoted',
        "\ufeffTimeout = 5\r\n# of Windows\r\n[sources.x]\r\nurl-env='URL'\r\nquery=':keys'\r\n",
        "# first\n\n[sources.x] # second\nurl-env = 'URL'\nquery = ':keys' # third\n# last\n",
        "sources.x = {url-env = 'URL', query = ':keys'} # inline",
        'http-hosts = """\ntimeout = 3"""\n',
    ],
)
def test_settings_are_written_into_a_file(tmp_path: Path, text: str) -> None:
    """However it is written, the file then has the new values, and every comment, section and other
    setting that it had."""
    around = {"URL": "sqlite:////x"}
    path = write(tmp_path, text)
    before = read(file=path, environment=around)
    rewrite(path, {"timeout": 7, "log-level": "debug", "bf-error-rate": 1e-9})
    after = read(file=path, environment=around)
    assert after.problems == before.problems
    assert after.sources == before.sources
    settings = before.settings
    settings.timeout, settings.log_level, settings.bf_error_rate = 7, "debug", 1e-9
    assert after.settings == settings
    written = path.read_text("utf-8")
    assert [one for one in re.findall(r"#[^\r\n]*", text) if one not in written] == []
    rewrite(path, {"timeout": 7})
    assert path.read_text("utf-8") == written
