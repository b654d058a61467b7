"""`python -m bench`: runs the measurements on servers of their own and writes the figures down."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bench import asgi, handover, pairs, renewals, report, server, turns
from bench.measure import FULL, QUICK, SCALES
from bench.target import Target
from tests.harness.servers import KINDS, Server, available_kinds, why_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measure import Scale, Table
    from tests.harness.servers import Kind

BENCHMARKS: dict[str, Callable[[Target, Scale], list[Table]]] = {
    "pairs": pairs.measure,
    "hand-over": handover.measure,
    "turns": turns.measure,
    "server": server.measure,
    "renewals": renewals.measure,
    "asgi": asgi.measure,
}
RESULTS = Path(__file__).parent / "results"
OPEN_FILES = 8192


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and reports; 0 unless there is no server to measure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--scale", choices=[*SCALES], default=FULL.name, help="how much is measured (default: full)")
    parser.add_argument("--quick", dest="scale", action="store_const", const=QUICK.name, help="less than a minute")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help=f"a comma list of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--server", choices=[*KINDS, "all"], help="default: all that are installed; quick: valkey")
    parser.add_argument("--transport", choices=["tcp", "unix", "all"], default="tcp", help="default: tcp")
    parser.add_argument("--output", help="the JSON file, - for standard output; default: a new one in bench/results")
    chosen = parser.parse_args(arguments)
    names = [name.strip() for name in chosen.only.split(",")]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    kinds = _kinds(chosen.server or ("all" if chosen.scale == FULL.name else "valkey"))
    if not kinds:
        return 1
    transports = ["tcp", "unix"] if chosen.transport == "all" else [chosen.transport]
    _allow_many_connections()
    document = _run(names, kinds, transports, SCALES[chosen.scale], shown=chosen.output != "-")
    if chosen.output == "-":
        print(json.dumps(document, indent=2))
    else:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        output = Path(chosen.output) if chosen.output else RESULTS / f"{stamp}.json"
        report.write(document, output)
        print(f"\n{document['seconds']:.0f} s; the figures are in {output}")
    return 0


def _kinds(wanted: str) -> list[Kind]:
    there = available_kinds()
    kinds: list[Kind] = list(KINDS) if wanted == "all" else [cast("Kind", wanted)]
    for kind in kinds:
        if kind not in there:
            print(f"not measured: {why_missing(kind)}", file=sys.stderr)
    return [kind for kind in kinds if kind in there]


def _allow_many_connections() -> None:
    """A thousand tasks of redis-py open a thousand connections: more than a process may have by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _run(names: list[str], kinds: list[Kind], transports: list[str], scale: Scale, *, shown: bool) -> dict[str, Any]:
    began = time.perf_counter()
    document: dict[str, Any] = {"scale": scale.name, "surroundings": report.surroundings(), "results": []}
    for kind in kinds:
        for transport in transports:
            with Server.start(kind) as process:
                target = Target(process, transport)
                label = f"{target.version}, {transport}"
                for name in names:
                    tables = BENCHMARKS[name](target, scale)
                    document["results"].append(
                        {
                            "benchmark": name,
                            "server": target.version,
                            "transport": transport,
                            "tables": [table.data() for table in tables],
                        }
                    )
                    if shown:
                        for table in tables:
                            report.show(table, label)
    document["seconds"] = round(time.perf_counter() - began, 1)
    return document


if __name__ == "__main__":
    sys.exit(main())
