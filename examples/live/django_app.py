"""A Django view that streams the changes of jobs, in one file.

    uvicorn examples.live.django_app:application

The view uses the Python API: the person who is logged in decides the tenant, and no API key is
needed. `Last-Event-ID` continues where the browser was.
"""

import asyncio
import json
import os

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.urls import path

from holdfast import Holdfast

ORG = "0198c0de-0000-7000-8000-00000000000a"

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=__name__,
        SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
        ALLOWED_HOSTS=["127.0.0.1", "localhost", "testserver"],
        DATABASES={},
    )
    django.setup()

hf = Holdfast("sqlite:///orders.db")


@hf.job("order.ship")
def ship(job, payload):
    return {"shipped": payload["order"]}


async def order(request: HttpRequest) -> JsonResponse:
    job = await hf.aenqueue("order.ship", {"order": 42}, org_id=ORG)
    return JsonResponse({"job_id": job.id}, status=202)


async def events(request: HttpRequest) -> StreamingHttpResponse:
    changes = hf.operate(actor="user:ada", role="viewer", org_id=ORG).changes
    after = request.headers.get("Last-Event-ID") or None
    reader = await asyncio.to_thread(changes.subscribe, ["jobs"], after=after)

    async def body():
        try:
            yield f"id: {reader.position}\n\n"
            while True:
                for change in await reader.aread(15):
                    position = reader.moved_past(change)
                    data = json.dumps(change.document())
                    yield f"id: {position}\nevent: change\ndata: {data}\n\n"
                yield f": heartbeat\nid: {reader.settle()}\n\n"
        finally:
            reader.close()

    return StreamingHttpResponse(body(), content_type="text/event-stream")


urlpatterns = [path("orders", order), path("events", events)]
application = get_asgi_application()
