#!/usr/bin/env bash
# Makes .browser-env: Playwright and axe-core as pinned, by their hashes, once; the browser itself is Debian's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
folder=.browser-env
pinned=tests/browser/requirements.txt
if ! cmp -s "$pinned" "$folder/installed.txt"; then
  rm -rf "$folder"
  "$python" -m venv "$folder" 2>/dev/null || "$python" -m virtualenv --quiet "$folder"
  echo "setup: installing Playwright and axe-core into $folder (once, half a minute)"
  "$folder/bin/pip" --quiet --disable-pip-version-check install --require-hashes -r "$pinned"
  cp "$pinned" "$folder/installed.txt"
fi
