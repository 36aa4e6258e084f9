"""Sessions of pages: begun, found, ended; and the tokens against CSRF."""

from bloomery.service.access.authentication import Login
from bloomery.service.access.permissions import ANYBODY
from bloomery.service.access.sessions import Sessions
from bloomery.service.config.settings import Settings

LOGIN = Login(ANYBODY, "proof")


def test_a_session_lasts_as_long_as_is_set() -> None:
    """A token stands for its login until its time is over; a change of the setting counts."""
    now, settings = [0.0], Settings(session_seconds=60)
    sessions = Sessions(settings, clock=lambda: now[0])
    token = sessions.begin(LOGIN)
    assert len(token) >= 43  # 256 random bits
    now[0] = 59.9
    assert sessions.find(token) is LOGIN
    now[0] = 60.0
    assert sessions.find(token) is None
    settings.session_seconds = 600
    assert sessions.find(token) is None  # it was over


def test_a_session_ends() -> None:
    """A token that was ended, or made up, stands for nobody; others go on."""
    sessions = Sessions(Settings())
    one, other = sessions.begin(LOGIN), sessions.begin(LOGIN)
    sessions.end(one)
    sessions.end("made up")
    assert sessions.find(one) is sessions.find("") is sessions.find("\udc80") is None
    assert sessions.find(other) is LOGIN


def test_an_expired_login_is_no_session() -> None:
    """A session that was begun by a token ends with it."""
    sessions = Sessions(Settings())
    assert sessions.find(sessions.begin(Login(ANYBODY, "proof", expires=1.0))) is None


def test_sessions_are_bounded() -> None:
    """The oldest of very many ends for a new one."""
    sessions = Sessions(Settings())
    first = sessions.begin(LOGIN)
    second = sessions.begin(LOGIN)
    for _ in range(9999):
        sessions.begin(LOGIN)
    assert sessions.find(first) is None
    assert sessions.find(second) is LOGIN


def test_each_session_has_its_own_csrf_token() -> None:
    """The token is the same for the same session, and else another; also on another server."""
    sessions, others = Sessions(Settings()), Sessions(Settings())
    tokens = [sessions.csrf_token(one) for one in (None, "a", "b")] + [others.csrf_token(None)]
    assert len(set(tokens)) == 4
    assert sessions.csrf_token("a") == tokens[1]
