"""Django's tasks on Holdfast: in a transaction, run by a worker, listed in the admin."""

import logging
import tempfile

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="example",  # noqa: S106
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": f"{tempfile.mkdtemp()}/work.db",
        }
    },
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "holdfast.contrib.django",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    TASKS={
        "default": {
            "BACKEND": "holdfast.contrib.django.tasks.HoldfastBackend",
            "QUEUES": ["default", "mail"],
        }
    },
    ROOT_URLCONF=__name__,
    STATIC_URL="static/",
    ALLOWED_HOSTS=["*"],
    USE_TZ=True,
)
django.setup()
# Django logs the traceback of a failed task.
logging.disable(logging.ERROR)

from django.contrib import admin  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

from holdfast.contrib.django.app import application  # noqa: E402

try:
    from django.tasks import task  # Django 6
except ImportError:
    from django_tasks import task  # the package django-tasks

urlpatterns = [path("admin/", admin.site.urls)]


@task(queue_name="mail", priority=10)
def send_receipt(order: int, *, article: str = "rope") -> str:
    return f"order {order}: {article}"


@task(takes_context=True)
def fail(context: object) -> None:
    raise LookupError(f"attempt {context.attempt}")


def main() -> None:
    call_command("migrate", verbosity=0)
    hf = application()
    _ = hf.store  # Opening the store creates the tables of Holdfast.
    with transaction.atomic():
        sent = send_receipt.enqueue(7, article="anchor")
    try:
        with transaction.atomic():
            send_receipt.enqueue(8)
            raise ValueError("sold out")
    except ValueError:
        print("rolled back")
    failed = fail.enqueue()
    print(f"jobs run: {hf.worker().run(until_idle=True).claimed}")
    sent.refresh()
    failed.refresh()
    print(f"{sent.status}: {sent.return_value}; {failed.status} after {failed.attempts} attempt")

    from django.contrib.auth.models import User

    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    listed = client.get("/admin/holdfast/job/")
    shown = client.get(f"/admin/holdfast/job/{failed.id}/change/")
    added = client.get("/admin/holdfast/job/add/")
    print(f"admin: {listed.status_code} {shown.status_code} {added.status_code}")
    jobs = listed.content.decode().count("<td>django.task</td>")
    print(f"jobs in the admin: {jobs}, failed with DEFECT: {b'DEFECT' in shown.content}")
    hf.close()


if __name__ == "__main__":
    main()
