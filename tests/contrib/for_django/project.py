"""A small Django project: one table, views with and without locks, a command that must run once."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.db import connection
from django.http import HttpResponse, JsonResponse
from django.urls import path

from tenure.contrib.django import LockedCommand, locked, locks

if TYPE_CHECKING:
    from django.http import HttpRequest


def configure(database: dict[str, Any], url: str, namespace: str) -> None:
    """Once a process, as Django wants it."""
    settings.configure(
        DEBUG=False,
        SECRET_KEY="x" * 50,
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=["tenure.contrib.django"],
        DATABASES={"default": database | {"ATOMIC_REQUESTS": True}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        TENURE={"URL": url, "NAMESPACE": namespace},
    )
    django.setup()


def create() -> None:
    """Makes the table, with one order."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS orders")
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)")
        cursor.execute("INSERT INTO orders VALUES (7, 0)")


def total() -> int:
    """What the order comes to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT total FROM orders WHERE id = 7")
        return cursor.fetchone()[0]


def write(value: int) -> None:
    """Stores it."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET total = %s WHERE id = 7", [value])


def _add(request: HttpRequest, order_id: int) -> HttpResponse:
    write(total() + 1)
    return JsonResponse({"id": order_id, "path": request.path})


add = locked("order:{order_id}", wait=30)(_add)
hasty = locked("order:{order_id}", wait=30, until_commit=False)(_add)


@locked("order:{order_id}", show_holder=True)
def busy(_request: HttpRequest, order_id: int) -> HttpResponse:
    """Answered when nobody else has the order."""
    return HttpResponse(f"mine: {order_id}".encode())


@locked("order:{order_id}")
def failing(_request: HttpRequest, order_id: int) -> HttpResponse:
    """Writes, and is rolled back."""
    write(1000)
    raise ValueError(order_id)


@locked("order:{order_id}")
def held(_request: HttpRequest, order_id: int) -> HttpResponse:
    """Whether the lock is held inside of the view."""
    return JsonResponse({"held": locks().holder(f"order:{order_id}") is not None})


class Nightly(LockedCommand):
    """A command that must run once."""

    lock_name = "nightly"

    def handle(self, *_args: object, **_options: object) -> str:
        """Tells its fence."""
        return f"fence {self.lease.fence}"


urlpatterns = [
    path("add/<int:order_id>", add),
    path("hasty/<int:order_id>", hasty),
    path("busy/<int:order_id>", busy),
    path("failing/<int:order_id>", failing),
    path("held/<int:order_id>", held),
]
