#!/usr/bin/env bash
# pinned_environment.sh NAME WHAT: makes .NAME-env with requirements.txt of tests/NAME or packaging/NAME as pinned, by hash
# where it has hashes, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
folder=.$1-env
pinned=tests/$1/requirements.txt
[ -e "$pinned" ] || pinned=packaging/$1/requirements.txt
if ! cmp -s "$pinned" "$folder/installed.txt"; then
  rm -rf "$folder"
  "$python" -m venv "$folder" 2>/dev/null || "$python" -m virtualenv --quiet "$folder"
  echo "setup: installing $2 into $folder (once, a minute)"
  "$folder/bin/pip" --quiet --disable-pip-version-check install -r "$pinned"
  cp "$pinned" "$folder/installed.txt"
fi
