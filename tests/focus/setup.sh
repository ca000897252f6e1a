#!/usr/bin/env bash
# Makes .focus-env: focus-validator with what it needs as pinned, once; its versions and those of loadfactor do not go together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
folder=.focus-env
pinned=tests/focus/requirements.txt
if ! cmp -s "$pinned" "$folder/installed.txt"; then
  rm -rf "$folder"
  "$python" -m venv "$folder" 2>/dev/null || "$python" -m virtualenv --quiet "$folder"
  echo "setup: installing focus-validator into $folder (once, a minute)"
  "$folder/bin/pip" --quiet --disable-pip-version-check install -r "$pinned"
  cp "$pinned" "$folder/installed.txt"
fi
