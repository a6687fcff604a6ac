"""Every page and action of the console, those of extensions included, for every wrong caller.

A page that the tables below do not know fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from starlette.routing import Route

from holdfast.api import create_app
from holdfast.api.authentication import COOKIE
from tests.api.conftest import WHY, Client, make_key
from tests.apps.household import HOME
from tests.apps.judged import KIND, SAID
from tests.console.everything import Everything
from tests.story import ORG, OTHER_ORG, look

pytestmark = pytest.mark.req("X-07")

STRANGERS = {
    "admin": "0198c0de-0000-7000-8000-0000000000c1",
    "operator": "0198c0de-0000-7000-8000-0000000000c2",
    "viewer": "0198c0de-0000-7000-8000-0000000000c3",
}
OWN_SITE = {"sec-fetch-site": "same-origin"}
# Public paths: they show nothing of an application, or authenticate by themselves.
OPEN = {
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/static/{name:path}"),
}
# The last segments of an action's path, by its page.
WORDS = {
    "/dead-letters/{job_id}/{step}": (
        *("triage", "remediate", "validate", "replay", "verify", "resolve"),
        *("discard", "fix-forward", "note"),
    ),
    "/deliveries/{delivery_id}/{decision}": ("confirm", "resend", "drop"),
    "/queues/{name}/{verb}": ("pause", "resume", "limits", "reset"),
    "/schedules/{name}/{verb}": ("pause", "resume", "fire"),
    "/batches/{batch_id}/{verb}": ("cancel", "release"),
    "/workflows/{workflow_id}/{verb}": ("cancel", "replay"),
    "/held-rewrites/{request_id}/{decision}": ("approve", "edit", "reject"),
}
# A form that every action accepts.
FORM = {
    "reason": WHY, "kind": "transient", "done": "checked", "evidence_ref": "ticket 7",
    "is_safe": "yes", "notes": WHY, "reference": "ticket 7", "body": "a note", "text": "Please.",
    "weight": "2", "max_running": "", "count": "1", "job_type": "leaflet.print",
}  # fmt: skip
QUERIES = {
    "/dead-letters/bulk": "?step=discard&error_class=GONE",
    "/deliveries/bulk": "?decision=drop&channel=mail",
    "/jobs/bulk": "?job_type=leaflet.print",
}
FORMS = {
    "/dead-letters/bulk": {"step": "discard", "error_class": "GONE"},
    "/deliveries/bulk": {"decision": "drop", "channel": "mail"},
}
# Pages that a viewer of operations does not see, as in the HTTP API.
MORE_THAN_VIEWERS = {
    *("/jobs/bulk", "/dead-letters/bulk", "/deliveries/bulk", "/audit", "/costs"),
    *("/held-rewrites", "/held-rewrites/{request_id}"),
}
ADMINS = {
    *("/queues/{name}/limits", "/queues/{name}/reset", "/schedules/{name}/fire"),
    *("/tenants/{org_id}", "/held-rewrites/{request_id}"),
    *(f"/held-rewrites/{{request_id}}/{word}" for word in ("approve", "edit", "reject")),
}


@dataclass(frozen=True)
class Visited:
    """A page or an action, and how to reach it."""

    method: str
    path: str
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"/console{self.path.format(**self.ids)}{QUERIES.get(self.path, '')}"

    def by(self, client: Client) -> Any:
        form = {**FORM, **FORMS.get(self.path, {})}
        given = {} if self.method == "GET" else {"data": form}
        return client.request(self.method, self.url, headers=OWN_SITE, **given)


class Walk:
    """The console of an application with one object of each kind."""

    def __init__(self, made: Everything) -> None:
        self.hf, self.clock = made.hf, made.clock
        self.app = create_app(made.hf)
        self.ids = {
            "/jobs/{job_id}": made.world.waiting[0].id,
            "/dead-letters/{job_id}": made.world.dead[0].id,
            "/deliveries/{delivery_id}": made.delivery,
            "/queues/{name}": "q:default",
            "/schedules/{name}": "nightly",
            "/tenants/{org_id}": ORG,
            "/runs/{run_id}": made.run,
            "/workflows/{workflow_id}": made.workflow,
            "/batches/{batch_id}": made.batch,
            "/bulk-actions/{action_id}": made.bulk_action,
            "/held-rewrites/{request_id}": made.held,
            "/reviews/{org_id}": made.review.org_id,
            "/reviews/{org_id}/{review_id}": made.review.review_id,
        }

    def pages(self) -> list[Visited]:
        """Every page and action that needs a session. An unknown one raises KeyError."""
        found = []
        for route in self.app.state.console.routes:
            assert isinstance(route, Route)
            path = route.path.removeprefix("/console")
            for method in (route.methods or set()) - {"HEAD"}:
                if (method, path) in OPEN:
                    continue
                if path == "/{rest:path}":
                    found.append(Visited(method, "/nothing"))
                    continue
                for word in WORDS.get(path, ("",)):
                    whole = path[: path.rindex("{")] + word if word else path
                    found.append(Visited(method, whole, self._ids(whole)))
        return found

    def _ids(self, path: str) -> dict[str, str]:
        found: dict[str, str] = {}
        at = path.find("}")
        while at >= 0:
            name = path[path.rindex("{", 0, at) + 1 : at]
            found[name] = self.ids[path[: at + 1]]
            at = path.find("}", at + 1)
        return found

    def with_key(self, role: str, org_id: str | None = None, **given: Any) -> Client:
        return Client(self.hf, self.app, make_key(self.hf, role, org_id, **given))

    def with_session(self, secret: str) -> Client:
        """A browser that logged in with a key."""
        client = Client(self.hf, self.app)
        answer = client.request("POST", "/console/login", data={"key": secret}, headers=OWN_SITE)
        assert answer.status_code == 303
        client.cookies = {COOKIE: answer.cookies[COOKIE]}
        return client

    def events(self) -> int:
        """How many events of changes there are. Refusals and reads are recorded as well."""
        (row,) = look(
            self.hf.store,
            "SELECT count(*) AS found FROM holdfast.job_event WHERE name NOT IN"
            " ('operator.refused', 'console.session_opened', 'api_key.created',"
            " 'rewrite_held_read')",
        )
        return int(row["found"])


@pytest.fixture
def walk(url: str) -> Iterator[Walk]:
    made = Everything(url)
    yield Walk(made)
    made.hf.close()


def test_without_a_valid_key_or_session_every_page_leads_to_the_login(walk: Walk) -> None:
    keys = walk.hf.operate(actor="user:root", role="admin").api_keys
    expired = make_key(walk.hf, "admin", None, expires_at=walk.clock.now() + timedelta(minutes=1))
    revoked = keys.create("n", role="admin", reason=WHY)
    closed = make_key(walk.hf, "admin", None)
    ended, stopped = walk.with_session(expired), walk.with_session(revoked.secret)
    left = walk.with_session(closed)
    assert left.request("POST", "/console/logout", headers=OWN_SITE).status_code == 303
    keys.revoke(revoked.key.id, reason=WHY)
    walk.clock.advance(minutes=1)
    forged = Client(walk.hf, walk.app)
    forged.cookies = {COOKIE: "hf_session_" + "x" * 56}
    wrong = {
        "none": Client(walk.hf, walk.app),
        "expired": Client(walk.hf, walk.app, expired),
        "revoked": Client(walk.hf, walk.app, revoked.secret),
        "unknown": Client(walk.hf, walk.app, "hf_live_" + "x" * 56),
        "session of an expired key": ended,
        "session of a revoked key": stopped,
        "session that was closed": left,
        "forged session": forged,
    }
    before = walk.events()

    asked = 0
    for page in walk.pages():
        for name, client in wrong.items():
            asked += 1
            # Failures are limited per minute; the walk is longer.
            walk.clock.advance(minutes=asked % 50 == 0)
            answer = page.by(client)
            where = answer.headers.get("location", "").partition("?")[0]
            assert (answer.status_code, where) == (303, "/console/login"), (page, name)

    assert asked > 400
    assert walk.events() == before


def test_no_page_opens_with_other_scopes_and_no_action_with_the_scope_of_readers(
    walk: Walk,
) -> None:
    weaker = walk.with_key("admin", scopes=["nothing:read", "nothing:write"])
    frontend = walk.with_key("viewer", HOME, scopes=["frontend"])
    reader = walk.with_session(make_key(walk.hf, "admin", None, scopes=["read"]))
    before = walk.events()

    for page in walk.pages():
        for client in (weaker, frontend):
            assert page.by(client).status_code == 403, page
        if page.method == "POST":
            assert page.by(reader).status_code == 403, page

    assert walk.events() == before


def test_a_viewer_opens_the_pages_of_viewers_and_every_action_is_refused(walk: Walk) -> None:
    viewer = walk.with_session(make_key(walk.hf, "viewer", None))
    before = walk.events()

    for page in walk.pages():
        answer = page.by(viewer)
        is_refused = page.method == "POST" or page.path in MORE_THAN_VIEWERS
        expected = 403 if is_refused else 404 if page.path == "/nothing" else 200
        if page.path == "/find":
            expected = 303
        assert answer.status_code == expected, (page, answer.text)

    assert walk.events() == before


def test_an_operator_is_refused_what_only_an_admin_decides(walk: Walk) -> None:
    operator = walk.with_session(make_key(walk.hf, "operator", None))
    before = walk.events()
    pages = [page for page in walk.pages() if page.path in ADMINS]

    assert {page.path for page in pages} == ADMINS
    for page in pages:
        assert page.by(operator).status_code == 403, page
    assert walk.events() == before


@pytest.mark.req("X-01", "X-09")
def test_a_key_of_another_tenant_sees_nothing_and_changes_nothing(walk: Walk) -> None:
    before = walk.events()
    private = {ORG, OTHER_ORG, HOME, SAID, KIND, *walk.ids.values()} - {"q:default", "nightly"}

    # The audit is checked first: a caller's own refusals name the object that it requested.
    pages = sorted(walk.pages(), key=lambda page: not page.path.startswith("/audit"))
    for role, org_id in STRANGERS.items():
        stranger = walk.with_session(make_key(walk.hf, role, org_id))
        for page in pages:
            answer = page.by(stranger)
            assert answer.status_code < 500, (page, answer.text)
            assert not [one for one in private if one in answer.text and one not in page.url], page
            if page.ids and page.path not in ("/queues/{name}", "/schedules/{name}"):
                # Resources of all tenants are forbidden; objects of another tenant do not exist.
                assert answer.status_code in (403, 404), (role, page, answer.text)

    assert walk.events() == before


@pytest.mark.req("X-01")
@pytest.mark.parametrize("org_id", [ORG, HOME])
def test_an_admin_of_a_tenant_opens_its_own_pages(walk: Walk, org_id: str) -> None:
    """On PostgreSQL the pages of a tenant are read in the role of tenants."""
    admin = walk.with_session(make_key(walk.hf, "admin", org_id))
    own = {
        ORG: {"/jobs/{job_id}", "/dead-letters/{job_id}", "/deliveries/{delivery_id}",
              "/workflows/{workflow_id}", "/reviews/{org_id}/{review_id}"},
        HOME: {"/held-rewrites/{request_id}"},
    }[org_id]  # fmt: skip

    shown = {page.path: page.by(admin) for page in walk.pages() if page.method == "GET"}

    assert {path for path, answer in shown.items() if answer.status_code >= 500} == set()
    assert {path for path in own if shown[path].status_code != 200} == set()
    if org_id == HOME:
        held = walk.ids["/held-rewrites/{request_id}"]
        assert held in shown["/held-rewrites"].text
        assert held in shown["/"].text
