"""How frameworks read a token out of an Authorization header, each in a few lines.

They follow the readers of the released libraries. `test_revocation_frameworks.py` compares those
that are installed with the libraries themselves; Sanic is not, because it needs an old multidict. A
reader gets the lines of the header and returns the token that the application would verify, or
None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Reader = Callable[[Sequence[str]], "str | None"]


def joined(lines: Sequence[str]) -> str:
    """Several lines of one header as WSGI servers and Django hand them on."""
    return ",".join(lines)


def flask_jwt_extended(lines: Sequence[str], scheme: str = "Bearer") -> str | None:
    """4.7: of the values with commas between them, the only one of the scheme."""
    text = joined(lines).strip().strip(",")
    if not scheme:
        words = text.split()
        return words[0] if len(words) == 1 else None
    fitting = [one.split() for one in re.split(r",\s*", text) if one.split()[:1] == [scheme]]
    return fitting[0][1] if len(fitting) == 1 and len(fitting[0]) == 2 else None


def sanic(lines: Sequence[str]) -> str | None:
    """25: what follows the first of these words, anywhere in the first line, or the whole line."""
    for word in ("Bearer", "Token"):
        if lines and word in lines[0]:
            return lines[0].partition(word)[2].strip()
    return lines[0] if lines else None


def sanic_credentials(lines: Sequence[str]) -> str | None:
    """25, `request.credentials`: *Basic* counts, too, and Sanic decodes what follows it."""
    if lines and "Basic" in lines[0]:
        return lines[0].partition("Basic")[2].strip()
    return sanic(lines)


def sanic_jwt(lines: Sequence[str]) -> str | None:
    """1.8: two words with one space between them."""
    words = lines[0].split(" ") if lines else []
    return words[1] if len(words) == 2 and words[0] == "Bearer" else None


def fastapi(lines: Sequence[str]) -> str | None:
    """0.162, HTTPBearer and OAuth2PasswordBearer: the first line, after its first space."""
    scheme, _, rest = lines[0].partition(" ") if lines else ("", "", "")
    return rest.strip() or None if scheme.lower() == "bearer" else None


def django_rest(lines: Sequence[str], scheme: bytes = b"Token") -> str | None:
    """3.18, TokenAuthentication with any keyword: two words."""
    words = joined(lines).encode("latin-1").split()
    fits = len(words) == 2 and words[0].lower() == scheme.lower()
    return words[1].decode("latin-1") if fits else None


def simplejwt(lines: Sequence[str], scheme: bytes = b"Bearer") -> str | None:
    """5.5 for Django REST: two words."""
    words = joined(lines).encode("latin-1").split()
    return words[1].decode("latin-1") if len(words) == 2 and words[0] == scheme else None


def starlette(lines: Sequence[str]) -> str | None:
    """The backend of Starlette's documentation: the first line in two words."""
    words = lines[0].split() if lines else []
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" else None


def werkzeug(lines: Sequence[str]) -> str | None:
    """3.1, `request.authorization.token`: after the first space."""
    scheme, _, rest = joined(lines).partition(" ")
    return rest.strip(" \t") if scheme.lower() == "bearer" else None


def authlib(lines: Sequence[str]) -> str | None:
    """1.9, ResourceProtector: two parts at the first white space."""
    words = joined(lines).split(None, 1)
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" else None


READERS: dict[str, Reader] = {
    "flask-jwt-extended": flask_jwt_extended,
    "flask-jwt-extended, JWT": lambda lines: flask_jwt_extended(lines, "JWT"),
    "flask-jwt-extended, no scheme": lambda lines: flask_jwt_extended(lines, ""),
    "Sanic": sanic,
    "Sanic, credentials": sanic_credentials,
    "sanic-jwt": sanic_jwt,
    "FastAPI": fastapi,
    "Django REST": django_rest,
    "Django REST, Bearer": lambda lines: django_rest(lines, b"Bearer"),
    "simplejwt": simplejwt,
    "simplejwt, JWT": lambda lines: simplejwt(lines, b"JWT"),
    "Starlette": starlette,
    "Werkzeug": werkzeug,
    "Authlib": authlib,
}
