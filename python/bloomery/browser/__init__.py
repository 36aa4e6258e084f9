"""Filters, exact sets and feeds in a browser: `bloomery.js`, one plain module of JavaScript.

It imports nothing, and nothing has to be built: copy it beside your own scripts, or let a server
send it (`bloomery serve` has it at `/bloomery.js`). docs/browser.md is its page.
"""

from pathlib import Path

__all__ = ["MODULE"]

MODULE: Path = Path(__file__).with_name("bloomery.js")
"""The module's file, to be copied to where a site has its scripts."""
