"""An application with one object of each kind, and how each route of the API is called on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute

from holdfast import ArtifactSettings, FakeClock, Gone, Holdfast, chain
from holdfast.api import create_app
from holdfast.api.application import routes_of
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.operate.bulk_actions import LetterAction
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast_rewrite import Rewrites
from holdfast_rewrite.settings import RewriteSettings
from tests.api.conftest import WHY, Client, make_key
from tests.apps.household import RECIPIENT, ROUTE, SENDER, Heard, furnish, submission
from tests.operate.letters import die_at_once
from tests.outbox.planted import plant_delivery
from tests.story import ORG, make_holdfast
from tests.workflows.flow import two_steps

UNKNOWN_ID = "0198c0de-0000-7000-8000-0000000000ff"
REASON = {"reason": WHY}
KEY = {"name": "n", "role": "viewer", **REASON}
BULK = {**REASON, "action": "discard", "filter": {"job_type": "die"}}

# A body that the route accepts, by operation.
BODIES: dict[str, Any] = {
    "enqueue_job": {"job_type": "work"},
    "enqueue_jobs": {"jobs": [{"job_type": "work"}]},
    "create_api_key": KEY,
    "rotate_api_key": REASON,
    "triage_dead_letter": {"kind": "transient"},
    "remediate_dead_letter": {"done": []},
    "validate_dead_letter": {"evidence_ref": "ticket 7", "is_safe_to_repeat": True},
    "verify_dead_letter": {},
    "resolve_dead_letter": {"notes": WHY},
    "fix_forward_dead_letter": {**REASON, "reference": "ticket 7"},
    "add_dead_letter_note": {"body": "a note"},
    "act_on_dead_letters": BULK,
    "cancel_jobs": {**REASON, "filter": {"job_type": "work"}},
    "act_on_deliveries": {**REASON, "action": "drop", "filter": {"channel": "mail"}},
    "set_queue_limits": {**REASON, "weight": 2},
    "set_tenant_limits": {**REASON, "weight": 2},
    "start_run": {**REASON, "name": "recovery"},
    "replay_workflow": REASON,
    "send_workflow_event": {**REASON, "name": "approved"},
    "add_webhook": {**REASON, "url": "https://example.com/hooks"},
    "submit_rewrite": {
        "sender_user_id": SENDER,
        "recipient_user_id": RECIPIENT,
        "sender_message": "Please wash up.",
        "surface": "direct_message",
    },
    "submit_review": {
        "changelist_id": "c1",
        "review_version": 1,
        "idempotency_key": "k1",
        "patch": "not a patch",
    },
}
BODIES["send_workflow_event"] = {**REASON, "name": "paid"}
BODIES["edit_held_rewrite"] = {**REASON, "text": "Please."}
_ACTIONS = """
approve_held_rewrite reject_held_rewrite
cancel_job pause_queue resume_queue reset_queue pause_schedule resume_schedule trigger_schedule
reset_tenant replay_dead_letter discard_dead_letter confirm_delivery resend_delivery drop_delivery
revoke_api_key cancel_batch release_batch adopt_batch rotate_webhook pause_webhook resume_webhook
remove_webhook cancel_workflow replay_workflow
"""
BODIES.update(dict.fromkeys(_ACTIONS.split(), REASON))
# The query of a route that requires one.
QUERIES = {
    # A stream has no end, so a caller that is admitted gets a problem.
    "stream_events": "?after=x",
    "stream_rewrites": f"?user_id={SENDER}&after=x",
    "list_sent_rewrites": f"?user_id={SENDER}",
    "list_received_rewrites": f"?user_id={RECIPIENT}",
    "get_sent_rewrite": f"?user_id={SENDER}",
}
# Routes that need no key: they show nothing of an application, or they authenticate themselves.
PUBLIC = {
    ("GET", "/openapi.json"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/docs"),
    ("GET", "/v1/docs.css"),
    ("POST", "/v1/session"),
    ("GET", "/v1/session"),
    ("DELETE", "/v1/session"),
}


@dataclass(frozen=True)
class Called:
    """A route and how to call it."""

    method: str
    path: str
    operation: str
    scopes: tuple[str, ...]
    ids: dict[str, str] = field(default_factory=dict)
    is_as_tenant: bool = False

    @property
    def url(self) -> str:
        return self.path.format(**self.ids) + QUERIES.get(self.operation, "")

    def with_unknown(self) -> Called:
        """The same call with unknown ids."""
        unknown = {name: "unknown" if name == "name" else UNKNOWN_ID for name in self.ids}
        return Called(self.method, self.path, self.operation, self.scopes, unknown)

    def by(self, client: Client, **headers: str) -> Any:
        body = {} if self.method == "GET" else {"json": BODIES[self.operation]}
        return client.request(self.method, self.url, headers=headers, **body)


def make_world(url: str, clock: FakeClock, folder: Path) -> World:
    hf = make_holdfast(
        url,
        clock,
        rewrite=RewriteSettings(routes=(ROUTE,)),
        artifacts=ArtifactSettings(store=f"file://{folder}/artifacts"),
    )
    return World(hf, clock)


class World:
    """Objects of ORG for every path parameter."""

    def __init__(self, hf: Holdfast, clock: FakeClock) -> None:
        self.hf, self.clock = hf, clock
        hf.job("work")(lambda job, payload: None)
        hf.job("tell", category="notification")(lambda job, payload: None)
        hf.schedule("declared", every="1h", job_type="tell", payload={}, org_id=ORG)
        sync_schedules(hf)
        self.rewrites = Rewrites(hf, classifier=Heard())
        furnish(self.rewrites)
        (dead,) = die_at_once(hf, Gone())
        keys = hf.operate(actor="user:root", role="admin").api_keys
        hook = hf.operate(actor="user:root", role="admin", org_id=ORG).webhooks.add(
            "https://example.com/hooks", reason=WHY
        )
        own = hf.operate(actor="user:root", role="admin", org_id=ORG)
        discard = LetterAction("discard", DeadLetterFilter(job_type="mail.send"), WHY)
        self.ids = {
            "/v1/bulk-actions/{bulk_action_id}": own.bulk_actions.start(discard, expected=1).id,
            "/v1/jobs/{job_id}": hf.enqueue("work", {}, org_id=ORG).id,
            "/v1/dead-letters/{job_id}": dead.id,
            "/v1/deliveries/{delivery_id}": plant_delivery(
                hf, "held", tries=(("first", "unsure"),)
            ),
            "/v1/webhooks/{webhook_id}": hook.endpoint.id,
            "/v1/workflows/{workflow_id}": two_steps(hf),
            "/v1/queues/{name}": "q:default",
            "/v1/schedules/{name}": "declared",
            "/v1/tenants/{org_id}": ORG,
            "/v1/runs/{run_id}": UNKNOWN_ID,
            "/v1/batches/{batch_id}": UNKNOWN_ID,
            "/v1/reviews/{review_id}": UNKNOWN_ID,
            "/v1/api-keys/{key_id}": keys.create("n", role="viewer", reason=WHY, org_id=ORG).key.id,
            "/v1/rewrites/{rewrite_request_id}": self.rewrites.submit(
                submission()
            ).rewrite_request_id,
        }
        self.ids["/v1/rewrites/held/{rewrite_request_id}"] = UNKNOWN_ID
        self.ids["/v1/rewrites/sent/{rewrite_request_id}"] = self.ids[
            "/v1/rewrites/{rewrite_request_id}"
        ]
        self.app = create_app(hf)

    def workflow(self) -> str:
        @self.hf.job("step")
        def step() -> None: ...

        return chain(step.step(), step.step()).enqueue(org_id=ORG).id

    def client(self, secret: str | None = None) -> Client:
        return Client(self.hf, self.app, secret)

    def key(self, role: str = "operator", org_id: str | None = ORG, **given: Any) -> Client:
        return self.client(make_key(self.hf, role, org_id, **given))

    def routes(self) -> list[Called]:
        """Every route that needs a key. A route that the tables do not know raises KeyError."""
        found = []
        for path, route in routes_of(self.app):
            if path in ("/", "/console") or path.startswith("/console/"):
                # tests/console/test_walk.py walks the pages of the console.
                continue
            assert isinstance(route, APIRoute), path
            for method in route.methods:
                if (method, path) in PUBLIC:
                    continue
                operation = route.operation_id
                assert operation is not None, path
                scopes = route.endpoint.__holdfast_scopes__  # type: ignore[attr-defined]
                as_tenant = route.endpoint.__holdfast_options__.as_tenant  # type: ignore[attr-defined]
                found.append(Called(method, path, operation, scopes, self._ids(path), as_tenant))
                if method != "GET":
                    BODIES[operation]
        return found

    def _ids(self, path: str) -> dict[str, str]:
        head, brace, rest = path.partition("{")
        if not brace:
            return {}
        name = rest.partition("}")[0]
        return {name: self.ids[f"{head}{{{name}}}"]}
