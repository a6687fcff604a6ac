"""Text for terminals and logs: invisible and control characters as escapes."""

from __future__ import annotations

import re

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """All of *text*, with invisible and control characters as escapes."""
    return _HARMFUL.sub(_as_escape, text)


def _as_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
