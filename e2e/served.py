"""A running console, and browser pages that record every error."""

from __future__ import annotations

import threading
from pathlib import Path

from playwright.sync_api import Browser, Page

from holdfast import Holdfast
from holdfast.api.server import Server

SHOTS = Path("build/e2e")
CHECKS = (Path(__file__).parent / "page_checks.js").read_text()
VIEWS = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
# The browser names a violation of the content security policy in its console only for some kinds.
WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`securitypolicyviolation: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Windows:
    """Opens windows at an address. *errors* has the reports of their pages."""

    def __init__(self, chromium: Browser, url: str) -> None:
        self.chromium = chromium
        self.url = url
        self.errors: list[str] = []

    def page(self, view: str = "light", cookies: list[dict[str, object]] | None = None) -> Page:
        """A new window with its own cookies."""
        width, height = VIEWS[view]
        context = self.chromium.new_context(
            color_scheme="dark" if view == "dark" else "light",
            viewport={"width": width, "height": height},
            timezone_id="Europe/Berlin",
            base_url=self.url,
        )
        context.set_default_timeout(60_000)
        context.add_init_script(WATCH)
        if cookies:
            context.add_cookies(cookies)  # type: ignore[arg-type]
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", lambda asked: self.errors.append(f"failed: {asked.url}"))
        return page


class Console(Windows):
    """The console of an application, and windows that are logged in as an admin."""

    def __init__(self, hf: Holdfast, chromium: Browser) -> None:
        self.hf = hf
        self.server = Server(hf, port=0, is_dev=True)
        super().__init__(chromium, self.server.url)
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        assert self.server.dev_login is not None
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{self.server.url}/dev-login?token={self.server.dev_login.token}")
        self._cookies = context.cookies()
        context.close()

    def page(self, view: str = "light", cookies: list[dict[str, object]] | None = None) -> Page:
        """A new window that shares the session."""
        return super().page(view, cookies or [dict(one) for one in self._cookies])

    def close(self) -> None:
        self.server.stop()
        self._thread.join(timeout=10)
        self.hf.close()
