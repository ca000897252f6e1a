#!/usr/bin/env bash
# Makes .training-env: torch's CPU build, Lightning and Transformers as pinned, once, and the tracker's own distribution as it is now.
. "$(dirname "$0")/../../packaging/wheels.sh"
folder=.training-env
pinned=tests/training/requirements.txt
pip=("$folder/bin/pip" --quiet --disable-pip-version-check)
if ! cmp -s "$pinned" "$folder/installed.txt"; then
  rm -rf "$folder"
  "$python" -m venv "$folder" 2>/dev/null || "$python" -m virtualenv --quiet "$folder"
  echo "setup: installing PyTorch, Lightning and Transformers into $folder (once, a few minutes)"
  torch=$(grep '^torch==' "$pinned")
  if ! "${pip[@]}" install "$torch"; then
    echo "setup: pip does not find torch's CPU build (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL say where its wheels are); taking the larger one" >&2
    "${pip[@]}" install "${torch%+cpu}"
  fi
  grep -v '^torch==' "$pinned" | "${pip[@]}" install -r /dev/stdin
  cp "$pinned" "$folder/installed.txt"
fi
build_wheel packages/track loadfactor_track
"${pip[@]}" install --no-deps --force-reinstall "$wheel"
