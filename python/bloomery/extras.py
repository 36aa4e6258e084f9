"""Which extra of the package brings an optional module, and the error for one that is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from bloomery.errors import MissingExtra

# Where several extras bring a module, the first is named, unless whoever needs it is part of
# another. tests/unit/test_extras.py compares this with pyproject.toml and with what is imported.
EXTRAS: dict[str, tuple[str, ...]] = {
    "alembic": ("serve",),
    "argon2": ("serve",),
    "cachetools": ("guard", "serve"),
    "cryptography": ("feeds", "scrapy"),
    "duckdb": ("duckdb",),
    "fastapi": ("serve",),
    "hiredis": ("redis", "guard"),
    "httptools": ("serve",),
    "httpx": ("client", "serve"),
    "jinja2": ("serve",),
    "markupsafe": ("serve",),
    "matplotlib": ("plot",),
    "numpy": ("numpy", "arrow", "duckdb", "pandas", "polars", "plot", "spark"),
    "pandas": ("pandas", "spark"),
    "polars": ("polars",),
    "prometheus_client": ("serve",),
    "psycopg": ("postgresql",),
    "py4j": ("spark",),
    "pyarrow": ("arrow", "duckdb", "pandas", "spark"),
    "pydantic": ("serve",),
    "pydantic_core": ("serve",),
    "pyspark": ("spark",),
    "redis": ("redis", "guard"),
    "rich": ("cli", "serve"),
    "scrapy": ("scrapy",),
    "sqlalchemy": ("guard", "serve"),
    "starlette": ("serve",),
    "tomli": ("serve",),
    "tomlkit": ("serve",),
    "typer": ("cli", "serve"),
    "uvloop": ("serve",),
    "zstandard": ("cli", "serve"),
}


def missing(module: str, what: str, extra: str = "") -> MissingExtra:
    """The error of `what` without `module`: the extra to install, `extra` if that brings it too."""
    package = module.partition(".")[0]
    bring = EXTRAS.get(package)
    if bring is None:
        return MissingExtra(f"{what} needs {package}: install it, no extra of bloomery brings it")
    named = extra if extra in bring else bring[0]
    return MissingExtra(f"{what} needs {package}: pip install 'bloomery[{named}]'")


@contextmanager
def needed(module: str, what: str, extra: str = "") -> Iterator[None]:
    """Around an import: without the module it is a MissingExtra."""
    try:
        yield
    except ImportError:
        raise missing(module, what, extra) from None
