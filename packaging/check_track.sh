#!/usr/bin/env bash
# Builds the tracker's own sdist and wheel, installs it into an empty environment and tracks a loop; beside it, `loadfactor.track` is the same.
. "$(dirname "$0")/wheels.sh"
cmp LICENSE packages/track/LICENSE

build_wheel packages/track loadfactor_track
install_wheel
[ -z "$("$work/empty/bin/pip" list --format freeze --disable-pip-version-check | grep -viE '^(loadfactor-track|pip|setuptools|wheel)(==| )')" ]
cat > "$work/loop.py" <<'PY'
from loadfactor_track import track

with track(experiment="e", directory="progress") as run:
    for step in range(10):
        run.step(step=step, samples=1)
PY
oldest=$(command -v python3.9 || true)
[ -n "$oldest" ] && "$oldest" -c '' 2>/dev/null || oldest=
for one in "$work/empty/bin/python" $oldest; do
  (cd "$work" && rm -rf progress && PYTHONPATH="$(ls -d "$work"/empty/lib/python*/site-packages)" "$one" loop.py && grep -q '"kind":"end"' progress/*.jsonl)
done
PYTHONPATH="$(ls -d "$work"/empty/lib/python*/site-packages):src" "$python" -c '
import loadfactor, loadfactor_track
assert loadfactor.track is loadfactor_track.track'
echo "$(basename "$wheel") installs into an empty environment and tracks a loop"
