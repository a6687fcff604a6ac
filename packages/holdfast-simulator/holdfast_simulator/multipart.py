"""Multipart forms with a file, parsed in pieces: the file may be as large as a batch input."""

from __future__ import annotations

import re

from holdfast_simulator.blob import Blob
from holdfast_simulator.exchange import Call, Refused, Why

_NAME = re.compile(r'\bname="([^"]*)"')
_FILENAME = re.compile(r'\bfilename="([^"]*)"')


class Form:
    """The fields and the single file of a form."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.filename = ""
        self.file: Blob | None = None


def read_form(call: Call) -> Form:
    """Parse a multipart/form-data body. Raises Refused(INVALID) if it is not one."""
    kind = call.headers.get("content-type", "")
    found = re.search(r'boundary="?([^";]+)"?', kind)
    if not kind.startswith("multipart/form-data") or found is None:
        raise Refused(Why.INVALID, "The request must be multipart/form-data.")
    # All boundaries but the first follow a line end, so one is put before the first.
    mark = b"\r\n--" + found.group(1).encode()
    form = Form()
    body = call.body
    at = _find(body, mark[2:], 0)
    if at != 0:
        raise Refused(Why.INVALID, "The form does not begin with its boundary.")
    at += len(mark) - 2
    while body.read(at, 2) == b"\r\n":
        head_end = _find(body, b"\r\n\r\n", at)
        end = _find(body, mark, head_end if head_end >= 0 else at)
        if head_end < 0 or end < 0:
            raise Refused(Why.INVALID, "The form ends in the middle of a part.")
        _add(form, body.read(at, head_end - at).decode(errors="replace"), body, head_end + 4, end)
        at = end + len(mark)
    return form


def _add(form: Form, head: str, body: Blob, start: int, end: int) -> None:
    name = _NAME.search(head)
    filename = _FILENAME.search(head)
    if filename is not None:
        form.filename = filename.group(1)
        form.file = Blob()
        for piece in body.pieces(start, end):
            form.file.write(piece)
    elif name is not None:
        form.fields[name.group(1)] = body.read(start, end - start).decode(errors="replace")


def _find(body: Blob, mark: bytes, start: int) -> int:
    """Return the position of *mark* from *start* on, also across pieces; -1 if not found."""
    tail = b""
    at = start
    for piece in body.pieces(start):
        window = tail + piece
        found = window.find(mark)
        if found >= 0:
            return at - len(tail) + found
        at += len(piece)
        tail = window[-(len(mark) - 1) :]
    return -1
