"""The Django application: it registers the checks."""

# pyright: basic
# Django has no types of its own.

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class TenureConfig(AppConfig):
    """`tenure.contrib.django` in INSTALLED_APPS."""

    name = "tenure.contrib.django"
    label = "tenure"
    verbose_name = "tenure"

    def ready(self) -> None:
        """Registers what `manage.py check`, and `check --deploy`, look at."""
        from .checks import check_server, check_settings  # noqa: PLC0415 - Django's settings are there only now

        checks.register(check_settings, "tenure")
        checks.register(check_server, "tenure", deploy=True)
