"""The operator console: pages rendered on the server, on top of the operator API.

visit.py    One request: who makes it, its filter and its form. What a page returns.
mount.py    The console in the application of the HTTP API, with its keys and sessions.
site.py     Routes, rendering, error pages, headers and static files.
form.py     Forms: bounded in size and time.
format.py   How numbers, times, ids and states are written.
chart.py    Charts as SVG.
pages/      One module per subject.

It contains no SQL. Extensions add pages with ``Extension.console``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.console.mount import install as install
    from holdfast.console.site import Site as Site
    from holdfast.console.visit import ConsolePages as ConsolePages
    from holdfast.console.visit import Go as Go
    from holdfast.console.visit import Page as Page
    from holdfast.console.visit import PageContext as PageContext
    from holdfast.console.visit import Panel as Panel
    from holdfast.console.visit import Shown as Shown

__all__ = ["ConsolePages", "Go", "Page", "PageContext", "Panel", "Shown", "Site", "install"]

__getattr__ = lazy_names(
    __name__,
    {
        "holdfast.console.mount": "install",
        "holdfast.console.site": "Site",
        "holdfast.console.visit": "ConsolePages Go Page Panel Shown PageContext",
    },
)
