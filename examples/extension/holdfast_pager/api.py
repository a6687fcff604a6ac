"""The route of the extension: which numbers the tenant of the key has paged."""

from __future__ import annotations

from pydantic import BaseModel

from holdfast.api import CallerOf, Resource
from holdfast_pager.extension import Pager

router = Resource("pages")


class Pages(BaseModel):
    """The numbers that were paged."""

    numbers: list[str]


@router.read("", operation_id="list_pages")
def list_pages(caller: CallerOf) -> Pages:
    """List the numbers that the tenant has paged."""
    return Pages(numbers=caller.hf.extension(Pager).list_pages(caller.tenant()))
