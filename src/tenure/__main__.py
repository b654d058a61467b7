"""`python -m tenure`, the same as the `tenure` command."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
