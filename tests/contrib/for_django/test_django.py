"""Django: views, commits, commands and checks, with a database that is really shared."""

# pyright: basic
# ruff: noqa: ANN401 - Django has no types of its own

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import Client, RequestFactory, override_settings

import tenure
from tenure.contrib.django import hold_until_commit, locks
from tests.contrib.for_django import project
from tests.contrib.for_django.conftest import SPACE
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from tests.harness.servers import Server


@pytest.fixture
def others(valkey_server: Server, client: Any) -> Iterator[tenure.Locks]:
    del client
    with tenure.Locks(valkey_server.url, namespace=SPACE) as made:
        yield made


class TestViews:
    def test_a_request_holds_the_lock_of_its_url(self, client: Any, others: tenure.Locks) -> None:
        assert client.post("/held/7").json() == {"held": True}
        assert others.holder("order:7") is None

    def test_423_tells_what_and_who(self, client: Any, others: tenure.Locks) -> None:
        with others.lock("order:7", info="a job"):
            response = client.post("/busy/7")
        assert response.status_code == 423
        assert int(response.headers["Retry-After"]) >= 1
        body = response.json()
        assert (body["operation"], body["resource"], body["error"]) == ("post", "order:7", "locked")
        assert body["holder"]["info"] == "a job"
        assert client.post("/busy/7").content == b"mine: 7"

    def test_those_who_read_share(self, client: Any, others: tenure.Locks) -> None:
        with others.lock("order:7", shared=True):
            assert client.get("/busy/7").status_code == 200
            assert client.post("/busy/7").status_code == 423

    def test_503_without_a_server(self, client: Any) -> None:
        with override_settings(TENURE={"URL": "redis://127.0.0.1:1/0", "SERVER_TIMEOUT": 0.2}):
            response = client.post("/busy/7")
            locks().close()
        assert response.status_code == 503
        assert response.json()["error"] == "unavailable"


class TestCommits:
    def test_a_rollback_frees_the_lock(self, client: Any, others: tenure.Locks) -> None:
        assert client.post("/failing/7").status_code == 500
        wait_until(lambda: others.holder("order:7") is None, 30, "the lock to be given back")
        assert project.total() == 0

    def test_outside_of_a_transaction_nothing_is_held_on(self, client: Any) -> None:
        with locks().lock("order:7") as lease:
            assert not hold_until_commit(lease)

    @pytest.mark.parametrize("path", ["add", "hasty"])
    def test_the_update_that_is_lost_without_it(
        self, django_project: str, client: Any, others: tenure.Locks, path: str
    ) -> None:
        """The first request has left its view, and is held up before its commit; the second one begins."""
        if django_project != "postgresql":
            pytest.skip("SQLite lets one transaction write at a time; PostgreSQL is needed to lose an update")
        answers: list[int] = []

        def second() -> None:
            response: Any = Client().post(f"/{path}/7")
            answers.append(response.status_code)
            connections.close_all()

        thread = threading.Thread(target=second)
        view = {"add": project.add, "hasty": project.hasty}[path]
        with transaction.atomic():  # pyright: ignore[reportGeneralTypeIssues]
            view(_request(), order_id=7)
            thread.start()
            if path == "add":
                wait_until(lambda: bool(others.waiters("order:7")), 30, "the second request to wait for the lock")
            else:
                wait_until(_somebody_waits_for_the_row, 30, "the second request to write")
        thread.join(30)
        assert answers == [200]
        assert project.total() == (2 if path == "add" else 1), "the commit came too late"


class TestCommands:
    def test_one_at_a_time(self, client: Any, others: tenure.Locks) -> None:
        del client
        assert str(call_command(project.Nightly())).startswith("fence ")
        with others.lock("nightly"), pytest.raises(CommandError, match=r"not run: .* is at it") as refused:
            call_command(project.Nightly())
        assert refused.value.returncode == 75


class TestSettings:
    def test_they_are_checked(self, client: Any) -> None:
        del client
        with override_settings(TENURE={"URL": "http://nowhere"}):
            (error,) = checks.run_checks(tags=["tenure"])
            assert (error.id, error.level) == ("tenure.E001", checks.ERROR)
            with pytest.raises(ImproperlyConfigured, match="scheme"):
                locks()
        with override_settings(TENURE={"COLOUR": "red"}), pytest.raises(ImproperlyConfigured, match="COLOUR"):
            locks()
        assert not checks.run_checks(tags=["tenure"])

    def test_the_server_is_examined_before_a_deployment(self, client: Any, private_server: Server) -> None:
        del client
        private_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with override_settings(TENURE={"URL": private_server.url}):
            found = {message.id for message in checks.run_checks(tags=["tenure"], include_deployment_checks=True)}
            locks().close()
        assert "tenure.eviction" in found


def _request() -> HttpRequest:
    return RequestFactory().post("/add/7")


def _somebody_waits_for_the_row() -> bool:
    with connection.cursor() as cursor:
        # Within a transaction the server shows what it had seen first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return cursor.fetchone()[0] > 0
