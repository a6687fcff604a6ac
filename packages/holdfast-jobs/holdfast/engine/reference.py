"""References to stored files in payloads and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.document import MAX_DEPTH
from holdfast.ids import read_uuid

REF = "artifact:"


class Referenced:
    """An object that a result stores as its reference."""

    __slots__ = ()

    @property
    def ref(self) -> str:
        """The text that represents the object in a payload or a result."""
        raise NotImplementedError


def refs_in(value: object) -> list[str]:
    """The references in a payload or a result, in order, each once."""
    found: dict[str, None] = {}
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, Referenced):
            found[node.ref] = None
        elif isinstance(node, str):
            if _is_ref(node):
                found[node.lower()] = None
        elif isinstance(node, Mapping):
            todo.extend(reversed(list(node.values())))
        elif isinstance(node, (list, tuple)):
            todo.extend(reversed(node))
    return list(found)


def _is_ref(text: str) -> bool:
    if not text.startswith(REF):
        return False
    try:
        read_uuid(text.removeprefix(REF))
    except ValueError:
        return False
    return True


def with_refs(value: Any, levels: int = MAX_DEPTH) -> Any:
    """The same result, with each referenced object replaced by its reference."""
    match value:
        case Referenced():
            return value.ref
        case dict() if levels:
            return {name: with_refs(item, levels - 1) for name, item in value.items()}
        case list() | tuple() if levels:
            return [with_refs(item, levels - 1) for item in value]
        case _:
            return value
