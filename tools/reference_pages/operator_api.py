"""docs/reference/operator-api.md: every verb, its role, its audit event and its signature.

The roles are in operator_api.toml; tests/operate/test_verbs.py compares them with the behaviour.
"""

from __future__ import annotations

import inspect
import tomllib

from holdfast.operate import nouns
from holdfast.operate.operator import Operator
from reference_pages.page import HERE, Page, code, introduction, paragraphs
from reference_pages.python_api import signature


def build() -> Page:
    page = Page()
    page.add(introduction("operator_api"), "## Verbs")
    page.add(
        "*One tenant* and *all tenants* are the role that an operator of one tenant, or of all"
        " tenants, needs at least; `-` means that the verb is refused with `Forbidden`. *Another"
        " tenant* is the answer for an operator of a tenant that does not own the object; `own"
        " rows` means that only rows of the operator's tenant are used."
    )
    roles: dict[str, list[str]] = tomllib.loads((HERE / "operator_api.toml").read_text())
    rows = []
    for verb, (one, another, every, event) in roles.items():
        rows.append([code(verb), one, another, every, event if event == "-" else code(event)])
    page.table(("Verb", "One tenant", "Another tenant", "All tenants", "Audit event"), rows)
    page.add("## Signatures")
    for verb in roles:
        noun, _, name = verb.rpartition(".")
        owner = nouns.find(noun) if noun else Operator
        method = getattr(owner, name, None)
        if method is None:
            page.problems.append(f"operator_api.toml: {verb} does not exist")
            continue
        page.add(f"### `{verb}`", signature(verb, method), *paragraphs(inspect.getdoc(method)))
        page.need(verb, inspect.getdoc(method))
    return page
