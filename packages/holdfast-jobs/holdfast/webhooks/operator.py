"""Webhooks: register endpoints, rotate their secrets, pause and remove them."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.arguments import anything, checked, text
from holdfast.channel.address import url_problem
from holdfast.clock import read_instant
from holdfast.document import encode
from holdfast.engine.audit import PLATFORM_ORG, record_action
from holdfast.errors import NotFound
from holdfast.ids import read_named_id, read_uuid
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import Page, check_limit, page_of, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Tx
from holdfast.webhooks.channel import SQL
from holdfast.webhooks.pump import read_events, start_here
from holdfast.webhooks.settings import WebhookSettings

OLDEST = "00000000-0000-0000-0000-000000000000"
MOST_EVENTS = 50
_EVENT = re.compile(r"[a-z][a-z_.]{0,80}\*?|\*")


class WebhookNotFound(NotFound):
    """There is no such webhook, or it belongs to another tenant. Check the id."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"There is no webhook {webhook_id}.")
        self.webhook_id = webhook_id


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """An endpoint that gets the changes of a tenant. It never includes the secret."""

    id: str
    org_id: str
    url: str
    events: tuple[str, ...]
    paused_at: datetime | None
    previous_secret_until: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> WebhookEndpoint:
        return cls(
            str(row["id"]),
            str(row["org_id"]),
            row["url"],
            tuple(read_events(row["events"])),
            _instant(row["paused_at"]),
            _instant(row["previous_until"]),
            row["created_by"],
            read_instant(row["created_at"]),
            read_instant(row["updated_at"]),
        )


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """An endpoint with its new secret. The secret is not shown again."""

    endpoint: WebhookEndpoint
    secret: str = field(repr=False)


@checked(
    InvalidAction,
    checks={
        "after": text,
        "webhook_id": text,
        # Checked by the methods, so that a refusal is audited.
        **dict.fromkeys(("events", "reason", "url"), anything),
    },
)
class OperatorWebhooks:
    """The webhooks that *context* may see.

    A context of one tenant registers endpoints for the changes of that tenant. A context without a
    tenant registers endpoints for the changes of all tenants, or of the one that it names.
    """

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, *, org_id: str | None = None, limit: int = 50, after: str = OLDEST
    ) -> Page[WebhookEndpoint]:
        """Endpoints, oldest first, without their secrets."""
        tenant = self.context.tenant_for(Action.LOOK, org_id, subject="webhooks")
        asked = {"org_id": tenant, "after": read_id("after", after)}
        rows = self.context.store.many(SQL.list_endpoints, limit=check_limit(limit) + 1, **asked)
        found = [WebhookEndpoint.from_row(row) for row in rows]
        return page_of(found, limit, lambda one: one.id)

    def get(self, webhook_id: str) -> WebhookEndpoint:
        """One endpoint. Raises WebhookNotFound."""
        return self._locate(Action.LOOK, webhook_id)

    def add(
        self, url: str, *, reason: str, events: Sequence[str] = (), org_id: str | None = None
    ) -> WebhookSecret:
        """Register an endpoint and return its secret, which is not shown again.

        *events* are names such as ``job.succeeded`` or beginnings such as ``job.*``; none means
        all. The endpoint gets changes that are committed from now on.
        """
        action = Action.SET_WEBHOOK
        tenant = self.context.org_id if org_id is None else org_id
        home = tenant or PLATFORM_ORG
        reason = admit(self.context, action, reason, org_id=tenant, subject="webhooks")
        try:
            made = self._read(url, events)
        except InvalidAction as exc:
            self.context.refuse(action, exc, org_id=tenant, subject="webhooks")
        secret, new_id = new_secret(), self.context.ids.new()
        row = {"org_id": read_named_id(home), "id": new_id, "secret": secret, **made}
        row["created_by"] = f"{self.context.actor.type}:{self.context.actor.id}"
        most = self._settings.max_endpoints

        def work(tx: Tx) -> WebhookEndpoint:
            row["after_position"] = str(start_here(tx))
            if tx.one(SQL.count_endpoints, org_id=row["org_id"])["endpoints"] >= most:
                raise InvalidAction({"url": f"exceeds the limit of {most} webhooks per tenant"})
            tx.affected(SQL.insert_endpoint, made=[row])
            self._record(tx, row, "webhook.added", reason)
            return WebhookEndpoint.from_row(tx.one(SQL.find_endpoint, **_key(row)))

        return WebhookSecret(self.context.store.write(work), secret)

    def rotate(self, webhook_id: str, *, reason: str) -> WebhookSecret:
        """Give an endpoint a new secret. The previous one signs as well for a while."""
        found, reason = self._admit(webhook_id, reason)
        secret, overlap = new_secret(), round(self._settings.overlap_seconds * 1000)

        def work(tx: Tx) -> WebhookEndpoint:
            tx.affected(SQL.rotate_secret, secret=secret, overlap_ms=overlap, **_key(found))
            self._record(tx, found, "webhook.rotated", reason)
            return WebhookEndpoint.from_row(tx.one(SQL.find_endpoint, **_key(found)))

        return WebhookSecret(self.context.store.write(work), secret)

    def pause(self, webhook_id: str, *, reason: str) -> bool:
        """Store no more deliveries for an endpoint. False if it is paused already."""
        found, reason = self._admit(webhook_id, reason)
        return self._change(SQL.pause_endpoint, found, "webhook.paused", reason)

    def resume(self, webhook_id: str, *, reason: str) -> bool:
        """Store deliveries of new changes again. False if it is not paused."""
        found, reason = self._admit(webhook_id, reason)

        def work(tx: Tx) -> bool:
            after = {"after_position": str(start_here(tx))}
            if not tx.affected(SQL.resume_endpoint, **after, **_key(found)):
                return False
            self._record(tx, found, "webhook.resumed", reason)
            return True

        return self.context.store.write(work)

    def remove(self, webhook_id: str, *, reason: str) -> bool:
        """Remove an endpoint with its secrets. Its waiting deliveries fail."""
        found, reason = self._admit(webhook_id, reason)
        return self._change(SQL.delete_endpoint, found, "webhook.removed", reason)

    # -- parts

    @property
    def _settings(self) -> WebhookSettings:
        found: WebhookSettings = self.context.settings.webhooks
        return found

    def _read(self, url: object, events: object) -> dict[str, Any]:
        bad: dict[str, str] = {}
        is_private = self._settings.allow_private
        if not isinstance(url, str) or not url:
            bad["url"] = "must be an address such as https://example.com/hooks"
        elif says := url_problem(url, allow_private=is_private):
            bad["url"] = says
        names = (
            list(events) if isinstance(events, Sequence) and not isinstance(events, str) else [0]
        )
        if len(names) > MOST_EVENTS or not all(
            isinstance(one, str) and _EVENT.fullmatch(one) for one in names
        ):
            bad["events"] = f"must be up to {MOST_EVENTS} names such as job.succeeded or job.*"
        if bad:
            raise InvalidAction(bad)
        return {"url": url, "events": encode(sorted(set(names)))}

    def _admit(self, webhook_id: str, reason: str) -> tuple[WebhookEndpoint, str]:
        found = self._locate(Action.SET_WEBHOOK, webhook_id)
        subject, tenant = f"webhook:{found.id}", _tenant(found.org_id)
        return found, admit(
            self.context, Action.SET_WEBHOOK, reason, org_id=tenant, subject=subject
        )

    def _locate(self, action: Action, webhook_id: str) -> WebhookEndpoint:
        """Another tenant's endpoint and an unknown id raise the same error."""
        try:
            wanted = read_uuid(webhook_id)
        except ValueError:
            raise WebhookNotFound(webhook_id[:100]) from None
        asked = {"org_id": self.context.org_id, "id": wanted}
        row = self.context.store.maybe(SQL.find_endpoint, **asked)
        if row is None:
            raise WebhookNotFound(wanted)
        tenant = _tenant(str(row["org_id"]))
        self.context.check(action, org_id=tenant, subject=f"webhook:{wanted}")
        return WebhookEndpoint.from_row(row)

    def _change(self, statement: Any, found: WebhookEndpoint, name: str, reason: str) -> bool:
        def work(tx: Tx) -> bool:
            if not tx.affected(statement, **_key(found)):
                return False
            self._record(tx, found, name, reason)
            return True

        return self.context.store.write(work)

    def _record(self, tx: Tx, endpoint: Any, name: str, reason: str) -> None:
        key = _key(endpoint)
        record_action(
            tx,
            self.context.actor,
            subject=f"webhook:{key['id']}",
            name=name,
            detail={"reason": reason},
            org_id=key["org_id"],
        )


def new_secret() -> str:
    """A signing secret in the form of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _tenant(org_id: str) -> str | None:
    return None if org_id == PLATFORM_ORG else org_id


def _key(endpoint: Any) -> dict[str, str]:
    if isinstance(endpoint, WebhookEndpoint):
        return {"org_id": endpoint.org_id, "id": endpoint.id}
    return {"org_id": endpoint["org_id"], "id": endpoint["id"]}


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)
