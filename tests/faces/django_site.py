# ruff: noqa: E402
"""A Django project with the API and the console mounted, and a test in it.

Run as a program: Django has one set of settings per process.
"""

from __future__ import annotations

import sys
import tempfile

import django
from django.conf import settings

DATABASE = f"{tempfile.mkdtemp(dir=sys.argv[1])}/site.db"
settings.configure(
    SECRET_KEY="only for this test",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "holdfast.contrib.django",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
)
django.setup()

from django.contrib.auth.models import Permission, User
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from starlette.testclient import TestClient

from holdfast.contrib.django.app import application as project
from holdfast.contrib.django.asgi import mount

OWN_SITE = {"sec-fetch-site": "same-origin"}
PAUSE = "/holdfast/console/queues/q:default/pause"


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Django at {request.path}")


urlpatterns = [path("", home), path("holdfastly", home)]


def browser(user: User | None = None) -> TestClient:
    made = TestClient(SITE, base_url="http://127.0.0.1", follow_redirects=False)
    if user is not None:
        login = Client()
        login.force_login(user)
        made.cookies.set("sessionid", login.cookies["sessionid"].value)
    return made


call_command("migrate", verbosity=0)
hf = project()
hf.job("work")(lambda job, payload: None)
SITE = mount(get_asgi_application())

# Paths outside of the prefix belong to Django.
assert browser().get("/").text == "Django at /"
assert browser().get("/holdfastly").text == "Django at /holdfastly"

# Nobody is logged in: the console asks for a key, the API answers 401.
anyone = browser()
assert anyone.get("/holdfast").headers["location"] == "/holdfast/console/"
assert anyone.get("/holdfast/console/").headers["location"].startswith("/holdfast/console/login")
assert anyone.get("/holdfast/v1/jobs").status_code == 401

# A key works below the prefix.
keys = hf.operate(actor="user:root", role="admin").api_keys
secret = keys.create(
    "shop", role="operator", org_id=hf.enqueue("work", {}).org_id, reason="t"
).secret
made = anyone.post(
    "/holdfast/v1/jobs", json={"job_type": "work"}, headers={"Authorization": f"Bearer {secret}"}
)
assert made.status_code == 201, made.text

# A superuser is an admin, and another site cannot use their login.
root = browser(User.objects.create_superuser("root"))
assert "· admin" in root.get("/holdfast/console/").text
assert root.post(PAUSE, data={"reason": "x"}).status_code == 403
assert root.post(PAUSE, data={"reason": "x"}, headers=OWN_SITE).status_code == 303

# A permission makes a viewer; others are refused, also when they were logged in.
reader = User.objects.create_user("ann")
assert browser(reader).get("/holdfast/console/").status_code == 303
reader.user_permissions.add(Permission.objects.get(codename="view_job"))
viewer = browser(reader)
assert "· viewer" in viewer.get("/holdfast/console/").text
assert viewer.post(PAUSE, data={"reason": "x"}, headers=OWN_SITE).status_code == 403
User.objects.filter(pk=reader.pk).update(is_active=False)
assert viewer.get("/holdfast/console/").status_code == 303
forged = browser()
forged.cookies.set("sessionid", "x" * 32)
assert forged.get("/holdfast/console/").status_code == 303
hf.close()
print("served")
