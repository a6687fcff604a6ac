"""A process that is killed while it stores an artifact, before it can clean up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from holdfast import ArtifactSettings, Holdfast, Settings
from holdfast.artifacts import write
from holdfast.artifacts.s3_store import S3BlobStore
from tests.artifact.dying import SIZE
from tests.story import ORG

DEATH = 9


def die(*_: Any, **__: Any) -> Any:
    os._exit(DEATH)


def die_after(module: Any, name: str, *, when: Callable[..., bool] = lambda *_: True) -> None:
    real = getattr(module, name)

    def last(*args: Any, **options: Any) -> Any:
        done = real(*args, **options)
        if when(*args):
            die()
        return done

    setattr(module, name, last)


def content(point: str) -> Iterator[bytes]:
    if point == "after the row":
        die()
    yield bytes(SIZE)
    if point == "in the middle of the bytes":
        die()
    yield bytes(SIZE)


def arm(point: str, hf: Holdfast) -> None:
    on_s3 = isinstance(hf.artifacts.blobs, S3BlobStore)
    if point == "after the bytes":
        if on_s3:
            hf.artifacts.blobs._client.complete_multipart_upload = die
        else:
            os.rename = die
    elif point == "after the rename":
        if on_s3:
            die_after(hf.artifacts.blobs._client, "complete_multipart_upload")
        else:
            die_after(os, "rename")
    elif point == "before the commit":
        die_after(write, "_store")
    elif point == "after the commit":
        die_after(hf.store, "write", when=lambda work: "_store" in work.__code__.co_names)


def store_and_die(
    url: str, store: str, endpoint: str | None, point: str, credentials: dict[str, str]
) -> None:
    os.environ.update(credentials)
    kept = ArtifactSettings(store=store, endpoint=endpoint)
    hf = Holdfast(settings=Settings(db=url, artifacts=kept))
    arm(point, hf)
    hf.artifacts.put(content(point), org_id=ORG, name="big.csv")
