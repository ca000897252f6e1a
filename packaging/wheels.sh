# Sourced by check_agent.sh, check_track.sh, check_wheel.sh and tests/training/setup.sh: how a distribution is built and installed, in a temporary folder `$work`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH

# build_wheel FOLDER NAME: builds the sdist of a folder and the wheel from that; `$wheel` is its path.
build_wheel() {
  (cd "$1" && "$python" -m hatchling build -t sdist -d "$work" >/dev/null)
  tar -xzf "$work/$2"-[0-9]*.tar.gz -C "$work"
  (cd "$work/$2"-[0-9]*/ && "$python" -m hatchling build -t wheel -d "$work/dist" >/dev/null)
  wheel=$(ls "$work/dist/$2"-[0-9]*.whl)
}

# install_wheel: installs `$wheel` into an empty environment, `$work/empty`, with those built beside it that it needs.
install_wheel() {
  "$python" -m venv "$work/empty" 2>/dev/null || "$python" -m virtualenv --quiet "$work/empty"
  "$work/empty/bin/pip" install --quiet --disable-pip-version-check --find-links "$work/dist" "$wheel"
  "$work/empty/bin/pip" check
}
