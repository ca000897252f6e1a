#!/bin/sh
# Makes .venv with the pinned dependencies and this package, using uv where it is installed and the standard library where not.
set -eu
PYTHON=${PYTHON:-python3}
command -v "$PYTHON" >/dev/null || { echo "setup: no $PYTHON found; install Python 3.11 or newer, or run make PYTHON=/path/to/python3" >&2; exit 1; }
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: $("$PYTHON" --version) is too old; run make PYTHON=python3.11 (or newer)" >&2; exit 1; }
if command -v uv >/dev/null; then
  [ -x .venv/bin/python ] || uv venv --quiet --python "$PYTHON" .venv
  uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock
  uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e packages/agent -e packages/track -e .
  exit 0
fi
if [ ! -x .venv/bin/pip ]; then
  rm -rf .venv
  "$PYTHON" -m venv .venv >/dev/null 2>&1 || "$PYTHON" -m virtualenv --quiet .venv 2>/dev/null || {
    rm -rf .venv
    echo "setup: this Python cannot make virtual environments; run: apt-get install python3-venv (or install uv), then make again" >&2
    exit 1
  }
fi
echo "setup: installing the pinned dependencies into .venv (once, one to two minutes)"
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packages/agent -e packages/track -e .
