#!/bin/sh
# Finds a Python that can run tenure, then lets tools/bootstrap.py make .venv with it.
# Usage: sh tools/bootstrap.sh run|dev       (PYTHON=... chooses the interpreter)
set -eu

# Runs the candidate: a version manager's shim can be on PATH without anything behind it.
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

if [ -n "${PYTHON:-}" ]; then
    tried=$PYTHON
    fits "$PYTHON" || PYTHON=
else
    tried="python3.11, python3, python"
    for candidate in python3.11 python3 python; do
        if fits "$candidate"; then PYTHON=$candidate && break; fi
    done
fi

if [ -n "${PYTHON:-}" ]; then
    exec "$PYTHON" "$(dirname "$0")/bootstrap.py" "$@"
fi
echo "tenure needs Python 3.11 or newer; tried: $tried." >&2
if command -v python3 >/dev/null 2>&1; then
    echo "python3 here is $(python3 --version 2>&1)." >&2
fi
echo "Install it (Debian, Ubuntu: apt install python3.11 python3.11-venv), or name one: make try PYTHON=/path/to/python3.11" >&2
exit 1
