"""The OpenAPI document, and a page of it that needs no script and no other server."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

router = APIRouter(include_in_schema=False)

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: CanvasText; background: Canvas; color-scheme: light dark; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid GrayText; }
h3 code { font-weight: 600; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, GrayText 40%, transparent); }
code { font: 0.9em ui-monospace, monospace; }
nav a { margin-right: 1rem; }
"""


@router.get("/v1/openapi.json")
@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    document = dict(request.app.openapi())
    if prefix := request.scope.get("root_path", ""):
        document["servers"] = [{"url": prefix}]
    return JSONResponse(document)


@router.get("/v1/docs")
async def page(request: Request) -> Response:
    """The API reference."""
    return HTMLResponse(render(request.app.openapi(), request.scope.get("root_path", "")))


@router.get("/v1/docs.css")
async def style() -> Response:
    """The style of the API reference."""
    return Response(STYLE, media_type="text/css")


def render(document: dict[str, Any], prefix: str) -> str:
    """Return the reference of an OpenAPI document as HTML."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    schemas = document["components"]["schemas"]
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in by_tag)
    parts = [f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{"".join(all_of)}'
             for tag, all_of in by_tag.items()]  # fmt: skip
    models = "".join(_schema(name, schema) for name, schema in sorted(schemas.items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>Holdfast API</title><link rel="stylesheet" href="{escape(prefix)}/v1/docs.css">'
        f"</head><body><h1>Holdfast API</h1><p>{escape(document['info']['description'])}</p>"
        f'<p>The OpenAPI document: <a href="{escape(prefix)}/v1/openapi.json">openapi.json</a></p>'
        f'<nav>{links}<a href="#models">models</a></nav>{"".join(parts)}'
        f'<h2 id="models">Models</h2>{models}</body></html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    name = escape(operation["operationId"])
    scopes = " or ".join(operation.get("x-holdfast-scopes", ()))
    rows = "".join(
        f"<tr><td><code>{escape(found['name'])}</code></td><td>{escape(found['in'])}</td>"
        f"<td>{'required' if found.get('required') else ''}</td>"
        f"<td>{escape(found.get('description', ''))}</td></tr>"
        for found in operation.get("parameters", ())
    )
    body = _reference(operation.get("requestBody", {}))
    answers = "".join(
        f"<tr><td>{escape(code)}</td><td>{escape(found['description'])}</td>"
        f"<td>{_reference(found)}</td></tr>"
        for code, found in operation["responses"].items()
    )
    return (
        f'<h3 id="{name}"><code>{escape(method.upper())} {escape(path)}</code></h3>'
        f"<p>{escape(operation.get('description', ''))}</p>"
        + (f"<p>Scope: <code>{escape(scopes)}</code></p>" if scopes else "")
        + (f"<table>{rows}</table>" if rows else "")
        + (f"<p>Body: {body}</p>" if body else "")
        + f"<table>{answers}</table>"
    )


def _reference(found: dict[str, Any]) -> str:
    for content in found.get("content", {}).values():
        return _type(content.get("schema", {}))
    return ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#model-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("format") or schema.get("type") or "any"))


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(found)}</td>"
        f"<td>{'required' if field in required else ''}</td>"
        f"<td>{escape(found.get('description', ''))}</td></tr>"
        for field, found in schema.get("properties", {}).items()
    )
    says = escape(schema.get("description", ""))
    head = f'<h3 id="model-{escape(name)}"><code>{escape(name)}</code></h3>'
    return f"{head}<p>{says}</p><table>{rows}</table>"
