"""The HTTP API: an ASGI application for ``holdfast serve``, or to mount in your own.

    from holdfast.api import create_app

    app.mount("/holdfast", create_app(hf))

It needs the extra ``serve``: ``pip install 'holdfast-jobs[serve]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.api.application import create_app as create_app
    from holdfast.api.caller import Caller as Caller
    from holdfast.api.caller import CallerOf as CallerOf
    from holdfast.api.resource import Resource as Resource
    from holdfast.operate.access import Identity as Identity

__all__ = ["Caller", "CallerOf", "Identity", "Resource", "create_app"]

__getattr__ = lazy_names(
    __name__,
    {
        "holdfast.api.application": "create_app",
        "holdfast.api.caller": "Caller CallerOf",
        "holdfast.api.resource": "Resource",
        "holdfast.operate.access": "Identity",
    },
)
