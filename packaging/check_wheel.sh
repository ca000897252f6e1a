#!/usr/bin/env bash
# Builds the sdist, the wheel from it, installs the wheel into an empty environment and runs `loadfactor demo` there.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH

"$PYTHON" -m hatchling build -t sdist -d "$work/dist" >/dev/null
tar -xzf "$work"/dist/loadfactor-*.tar.gz -C "$work"
python=$(realpath -s "$PYTHON")
(cd "$work"/loadfactor-*/ && "$python" -m hatchling build -t wheel -d "$work/dist" >/dev/null)
wheel=$(ls "$work"/dist/loadfactor-*.whl)

"$PYTHON" -m venv "$work/empty" 2>/dev/null || "$PYTHON" -m virtualenv --quiet "$work/empty"
"$work/empty/bin/pip" install --quiet --disable-pip-version-check "$wheel"
"$work/empty/bin/pip" check
cd "$work"
XDG_CACHE_HOME="$work/cache" "$work/empty/bin/loadfactor" demo --brief
"$work/empty/bin/python" -m loadfactor.agent --help >/dev/null
echo "$(basename "$wheel") installs into an empty environment and runs the demo"
