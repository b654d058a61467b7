"""Uploads one file with tuspy, the Python client, and prints where it is: `with_tuspy.py URL FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from tusclient.client import TusClient


def main(url: str, file: str) -> None:
    """Uploads the whole file in one request, and what is missing after each interruption in another one."""
    metadata = {"filename": Path(file).name, "filetype": "application/octet-stream"}
    # It sleeps for this long, which may be less than the second that its annotation allows.
    uploader = TusClient(url).uploader(file, metadata=metadata, retries=100, retry_delay=0.2)  # type: ignore[arg-type]
    uploader.upload()
    print(uploader.url, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
