"""The static files: third-party ones unchanged, our own ones small."""

from __future__ import annotations

import hashlib
import re
import tomllib

from tests.tree import ROOT

CONSOLE = ROOT / "packages" / "holdfast-jobs" / "holdfast" / "console"
VENDOR = CONSOLE / "static" / "vendor"
TEMPLATES = sorted(ROOT.glob("packages/*/holdfast*/**/*.html"))


def test_vendored_files_are_unchanged_and_have_their_licence() -> None:
    listed = tomllib.loads((VENDOR / "VENDORED.toml").read_text())["file"]

    for file in listed:
        found = (VENDOR / file["name"]).read_bytes()
        assert hashlib.sha256(found).hexdigest() == file["sha256"]
        assert (VENDOR / file["licence_file"]).read_text().startswith("Zero-Clause BSD")
        assert {"project", "version", "source", "path", "licence"} <= file.keys()
    named = {one for file in listed for one in (file["name"], file["licence_file"])}
    assert {path.name for path in VENDOR.iterdir()} == {*named, "VENDORED.toml"}


def test_the_console_has_one_style_sheet_and_one_short_script_of_its_own() -> None:
    own = {path.name for path in (CONSOLE / "static").iterdir() if path.is_file()}

    assert own == {"console.css", "console.js", "icon.svg"}
    assert len((CONSOLE / "static" / "console.js").read_text().splitlines()) <= 150


def test_templates_contain_no_inline_code_and_name_no_other_host() -> None:
    bad = re.compile(r"<script(?! src=\"\{\{ static)|<style|\bstyle=|\son\w+=|hx-on|//\w+\.|\|safe")

    assert len(TEMPLATES) > 20
    for template in TEMPLATES:
        text = template.read_text()
        assert bad.search(text) is None, template.name


def test_every_input_of_a_template_has_a_label() -> None:
    for template in TEMPLATES:
        text = template.read_text()
        for tag in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
            if 'type="hidden"' in tag or "aria-label" in tag or 'type="checkbox"' in tag:
                continue
            (name,) = re.findall(r'\bid="([^"]+)"', tag)
            assert f'for="{name}"' in text, (template.name, tag)
