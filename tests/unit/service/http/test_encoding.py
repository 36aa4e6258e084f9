"""Responses hold any text, also text that UTF-8 cannot."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bloomery.service.http.encoding import encode_json, encode_text

TEXT = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_any_text_is_encoded(value: Any) -> None:
    """A lone surrogate becomes characters, and everything else stays."""
    decoded = json.loads(encode_json(value))
    written = json.dumps(value, ensure_ascii=False)
    assert encode_text(written).decode("utf-8")
    if encode_text(written) == written.encode("utf-8", "surrogatepass"):
        assert decoded == value


def test_lone_surrogates_are_shown_as_escapes() -> None:
    """Lines of an audit log that an older server wrote have them."""
    data = encode_json({"names": ["a\udcff", "\ud800"], "rate": float("nan"), "ż": ("\udc80", 1)})
    assert json.loads(data) == {"names": ["a\\udcff", "\\ud800"], "rate": None, "ż": ["\\udc80", 1]}
    assert encode_text("<\udcff>") == b"<\\udcff>"
