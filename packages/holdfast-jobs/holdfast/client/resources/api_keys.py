"""Methods about api keys. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime

from holdfast.client.calls.api_keys import (
    Key,
    MadeKey,
    create_api_key,
    get_api_key,
    list_api_keys,
    revoke_api_key,
    rotate_api_key,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class ApiKeys:
    """The api keys that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Key]:
        """List keys, newest first. Revoked keys are included."""
        return self._call(list_api_keys(limit=limit, cursor=cursor))

    def create(
        self,
        name: str,
        *,
        role: str,
        reason: str,
        org_id: str | NotGiven | None = NOT_GIVEN,
        scopes: Sequence[str] | NotGiven = NOT_GIVEN,
        expires_at: datetime | NotGiven | None = NOT_GIVEN,
        requests_per_minute: int | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> MadeKey:
        """Create a key. The answer shows it once."""
        return self._call(
            create_api_key(
                name,
                role=role,
                reason=reason,
                org_id=org_id,
                scopes=scopes,
                expires_at=expires_at,
                requests_per_minute=requests_per_minute,
                idempotency_key=idempotency_key,
            )
        )

    def get(self, key_id: str) -> Key:
        """Return one key."""
        return self._call(get_api_key(key_id))

    def rotate(
        self,
        key_id: str,
        *,
        reason: str,
        overlap_seconds: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> MadeKey:
        """Create a key with the same permissions; the old one stays valid for a while."""
        return self._call(
            rotate_api_key(
                key_id,
                reason=reason,
                overlap_seconds=overlap_seconds,
                idempotency_key=idempotency_key,
            )
        )

    def revoke(self, key_id: str, *, reason: str) -> bool:
        """End a key and its sessions, at once."""
        return self._call(revoke_api_key(key_id, reason=reason))

    def every(self, *, limit: int | None = None) -> Iterator[Key]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncApiKeys:
    """The api keys that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Key]:
        """List keys, newest first. Revoked keys are included."""
        return await self._call(list_api_keys(limit=limit, cursor=cursor))

    async def create(
        self,
        name: str,
        *,
        role: str,
        reason: str,
        org_id: str | NotGiven | None = NOT_GIVEN,
        scopes: Sequence[str] | NotGiven = NOT_GIVEN,
        expires_at: datetime | NotGiven | None = NOT_GIVEN,
        requests_per_minute: int | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> MadeKey:
        """Create a key. The answer shows it once."""
        return await self._call(
            create_api_key(
                name,
                role=role,
                reason=reason,
                org_id=org_id,
                scopes=scopes,
                expires_at=expires_at,
                requests_per_minute=requests_per_minute,
                idempotency_key=idempotency_key,
            )
        )

    async def get(self, key_id: str) -> Key:
        """Return one key."""
        return await self._call(get_api_key(key_id))

    async def rotate(
        self,
        key_id: str,
        *,
        reason: str,
        overlap_seconds: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> MadeKey:
        """Create a key with the same permissions; the old one stays valid for a while."""
        return await self._call(
            rotate_api_key(
                key_id,
                reason=reason,
                overlap_seconds=overlap_seconds,
                idempotency_key=idempotency_key,
            )
        )

    async def revoke(self, key_id: str, *, reason: str) -> bool:
        """End a key and its sessions, at once."""
        return await self._call(revoke_api_key(key_id, reason=reason))

    async def every(self, *, limit: int | None = None) -> AsyncIterator[Key]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
