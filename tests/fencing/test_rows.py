# ruff: noqa: S608 - arguments are wrong on purpose, and statements are made of the tests' own numbers
"""Tables: the lost update without a fence, and that with one the stale holder is refused; in every database and way."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import pytest

import tenure

if TYPE_CHECKING:
    from tests.fencing.conftest import Holders
    from tests.fencing.databases import Access

ROW = {"id": 1}


def test_without_a_fence_the_newer_holders_write_is_lost(access: Access, holders: Holders) -> None:
    run = access.database.run
    ((seen_by_the_older,),) = run("SELECT boxes FROM shelf WHERE id = 1")
    # The older holder is paused here; the newer one adds ten boxes.
    run(f"UPDATE shelf SET boxes = boxes + 10, fence = {holders.newer.fence} WHERE id = 1")
    run(f"UPDATE shelf SET boxes = {seen_by_the_older + 1} WHERE id = 1")
    assert access.shelf() == (1, holders.newer.fence)


def test_a_stale_write_is_refused_and_changes_nothing(access: Access, holders: Holders) -> None:
    with access.transaction() as connection:
        assert access.table.update(connection, holders.newer, ROW, {"boxes": 10})
    with pytest.raises(tenure.StaleFence) as caught, access.transaction() as connection:
        access.table.update(connection, holders.older, ROW, {"boxes": 1, "label": "late"})
    assert (caught.value.fence, caught.value.seen) == (holders.older.fence, holders.newer.fence)
    assert "shelf id=1" in str(caught.value)
    assert access.shelf() == (10, holders.newer.fence)


def test_the_same_fence_may_write_again_and_a_newer_one_after_it(access: Access, holders: Holders) -> None:
    for fence, boxes in ((holders.older, 1), (holders.older.fence, 2), (holders.newer, 3), (holders.newer.fence, 4)):
        with access.transaction() as connection:
            assert access.table.update(connection, fence, ROW, {"boxes": boxes})
        assert access.shelf() == (boxes, fence if isinstance(fence, int) else fence.fence)


def test_without_the_guard_on_the_read_an_update_is_lost_in_spite_of_the_fence(
    access: Access, holders: Holders
) -> None:
    ((seen_by_the_newer,),) = access.database.run("SELECT boxes FROM shelf WHERE id = 1")
    with access.transaction() as connection:
        # Nobody newer has written yet, so this late write passes, and its author thinks that it counts.
        assert access.table.update(connection, holders.older, ROW, {"boxes": 5})
    with access.transaction() as connection:
        assert access.table.update(connection, holders.newer, ROW, {"boxes": seen_by_the_newer + 10})
    assert access.shelf() == (10, holders.newer.fence)


def test_after_a_newer_holders_read_the_stale_write_is_refused(access: Access, holders: Holders) -> None:
    with access.transaction() as connection:
        row = access.table.read(connection, holders.newer, ROW)
        boxes = access.column(row, "boxes")
    with pytest.raises(tenure.StaleFence), access.transaction() as connection:
        access.table.update(connection, holders.older, ROW, {"boxes": 5})
    assert access.shelf() == (0, holders.newer.fence)
    with access.transaction() as connection:
        assert access.table.update(connection, holders.newer, ROW, {"boxes": boxes + 10})
    assert access.shelf() == (10, holders.newer.fence)


def test_a_stale_read_is_refused(access: Access, holders: Holders) -> None:
    with access.transaction() as connection:
        access.table.read(connection, holders.newer, ROW)
    with pytest.raises(tenure.StaleFence), access.transaction() as connection:
        access.table.read(connection, holders.older, ROW)


def test_a_read_gives_every_column(access: Access, holders: Holders) -> None:
    access.database.run("UPDATE shelf SET boxes = 3, label = 'blue' WHERE id = 1")
    with access.transaction() as connection:
        row = access.table.read(connection, holders.older, ROW)
        values = tuple(access.column(row, name) for name in ("id", "boxes", "label", "fence"))
    assert values == (1, 3, "blue", holders.older.fence)


def test_a_row_that_is_missing_is_told_from_one_that_is_newer(access: Access, holders: Holders) -> None:
    with access.transaction() as connection:
        assert access.table.read(connection, holders.older, {"id": 2}) is None
        assert access.table.update(connection, holders.older, {"id": 2}, {"boxes": 1}) is False
    assert access.shelf(2) is None


def test_a_row_without_a_fence_takes_the_first_one(access: Access, holders: Holders) -> None:
    access.database.run("UPDATE shelf SET fence = NULL WHERE id = 1")
    with access.transaction() as connection:
        assert access.table.update(connection, holders.older, ROW, {"boxes": 1})
    access.database.run("UPDATE shelf SET fence = NULL WHERE id = 1")
    with access.transaction() as connection:
        access.table.upsert(connection, holders.older, ROW, {"boxes": 2})
    assert access.shelf() == (2, holders.older.fence)


class TestInsert:
    def test_it_inserts_once_and_then_raises_the_fence_only(self, access: Access, holders: Holders) -> None:
        for fence, boxes, inserted in ((holders.older, 1, True), (holders.older, 2, False), (holders.newer, 3, False)):
            with access.transaction() as connection:
                assert access.table.insert(connection, fence, {"id": 2}, {"boxes": boxes}) is inserted
            assert access.shelf(2) == (1, fence.fence)

    def test_a_stale_one_is_refused_and_changes_nothing(self, access: Access, holders: Holders) -> None:
        with access.transaction() as connection:
            assert access.table.insert(connection, holders.newer, {"id": 2}, {"boxes": 10})
        with pytest.raises(tenure.StaleFence), access.transaction() as connection:
            access.table.insert(connection, holders.older, {"id": 2}, {"boxes": 1})
        assert access.shelf(2) == (10, holders.newer.fence)

    def test_columns_that_are_not_given_have_their_defaults(self, access: Access, holders: Holders) -> None:
        with access.transaction() as connection:
            assert access.table.insert(connection, holders.newer, {"id": 2}, {})
        assert access.database.run("SELECT boxes, label FROM shelf WHERE id = 2") == [(0, "none")]


class TestUpsert:
    def test_it_inserts_and_then_updates(self, access: Access, holders: Holders) -> None:
        for fence, boxes in ((holders.older, 1), (holders.older, 2), (holders.newer, 3)):
            with access.transaction() as connection:
                access.table.upsert(connection, fence, {"id": 2}, {"boxes": boxes})
            assert access.shelf(2) == (boxes, fence.fence)

    def test_a_stale_one_is_refused_and_changes_nothing(self, access: Access, holders: Holders) -> None:
        with access.transaction() as connection:
            access.table.upsert(connection, holders.newer, {"id": 2}, {"boxes": 10})
        with pytest.raises(tenure.StaleFence), access.transaction() as connection:
            access.table.upsert(connection, holders.older, {"id": 2}, {"boxes": 1})
        assert access.shelf(2) == (10, holders.newer.fence)

    def test_other_columns_stay_as_they_are(self, access: Access, holders: Holders) -> None:
        access.database.run("UPDATE shelf SET label = 'blue' WHERE id = 1")
        with access.transaction() as connection:
            access.table.upsert(connection, holders.older, ROW, {"boxes": 7})
        assert access.database.run("SELECT boxes, label FROM shelf WHERE id = 1") == [(7, "blue")]


def test_the_fence_rises_with_the_transaction_and_falls_with_its_rollback(access: Access, holders: Holders) -> None:
    with contextlib.suppress(ZeroDivisionError), access.transaction() as connection:
        access.table.read(connection, holders.newer, ROW)
        raise ZeroDivisionError
    assert access.shelf() == (0, 0)


def test_a_key_of_several_rows_is_told_and_can_be_rolled_back(access: Access, holders: Holders) -> None:
    access.database.run("INSERT INTO shelf (id) VALUES (2)")
    with pytest.raises(tenure.TenureError, match="2 rows"), access.transaction() as connection:
        access.table.update(connection, holders.newer, {"label": "none"}, {"boxes": 1})
    assert (access.shelf(1), access.shelf(2)) == ((0, 0), (0, 0))


def test_values_are_never_taken_for_sql(access: Access, holders: Holders) -> None:
    label = '\'; DROP TABLE shelf; -- %s %(p1)s :p1 ? "x" ü'
    with access.transaction() as connection:
        access.table.upsert(connection, holders.older, {"id": 2}, {"label": label})
        assert access.table.update(connection, holders.older, {"label": label}, {"boxes": 1})
        assert access.column(access.table.read(connection, holders.older, {"label": label}), "label") == label
    assert access.shelf(2) == (1, holders.older.fence)


def test_what_is_no_fence_is_refused(access: Access) -> None:
    fence: Any
    with access.transaction() as connection:
        for fence in (True, -1, math.nan):
            for method in (access.table.update, access.table.insert, access.table.upsert):
                with pytest.raises(tenure.ConfigError, match="fence"):
                    method(connection, fence, ROW, {"boxes": 1})
            with pytest.raises(tenure.ConfigError, match="fence"):
                access.table.read(connection, fence, ROW)
    assert access.shelf() == (0, 0)


WRONG: list[tuple[Any, Any]] = [
    ({}, {"boxes": 1}),
    ({"id": None}, {"boxes": 1}),
    (1, {"boxes": 1}),
    (ROW, None),
    (ROW, {"id": 2}),
    (ROW, {"fence": 2}),
    ({"fence": 1}, {"boxes": 1}),
    (ROW, {1: 1}),
    ({'id" = 1 OR "id': 1}, {"boxes": 1}),
    (ROW, {'boxes" = 0 --': 1}),
    (ROW, {"": 1}),
]


def test_arguments_that_cannot_work_are_refused(access: Access) -> None:
    with access.transaction() as connection:
        for key, values in WRONG:
            for method in (access.table.update, access.table.insert, access.table.upsert):
                with pytest.raises(tenure.ConfigError):
                    method(connection, 7, key, values)
    assert access.shelf() == (0, 0)


def test_what_is_no_connection_is_refused(access: Access) -> None:
    for connection in (None, "x", object()):
        with pytest.raises(tenure.ConfigError, match=r"(?i)connection"):
            access.table.read(connection, 7, ROW)


def test_a_lease_of_several_names_needs_to_know_which(access: Access, several: tenure.Lease) -> None:
    with access.transaction() as connection:
        with pytest.raises(tenure.ConfigError, match="name="):
            access.table.update(connection, several, ROW, {"boxes": 1})
        assert access.table.update(connection, several, ROW, {"boxes": 1}, name="shelf:2")
        access.table.upsert(connection, several, ROW, {"boxes": 2}, name="shelf:2")
        assert not access.table.insert(connection, several, ROW, {"boxes": 3}, name="shelf:2")
        with pytest.raises(tenure.StaleFence):
            access.table.read(connection, several, ROW, name="shelf:1")
    assert access.shelf() == (2, several.fences["shelf:2"])


def test_a_semaphores_lease_is_refused(access: Access, place: tenure.Lease) -> None:
    with access.transaction() as connection, pytest.raises(tenure.ConfigError, match="semaphore"):
        access.table.update(connection, place, ROW, {"boxes": 1})
    assert access.shelf() == (0, 0)
