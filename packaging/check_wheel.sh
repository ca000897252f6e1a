#!/usr/bin/env bash
# Builds what is shipped twice, which gives the same bytes, installs the wheels into an empty environment and runs `loadfactor demo` there.
. "$(dirname "$0")/wheels.sh"

tests/pinned_environment.sh dist 'CycloneDX and pip-audit'
packaging/make_dist.sh "$work/again"
(umask 077 && packaging/make_dist.sh "$work/dist" >/dev/null)
diff -r "$work/again" "$work/dist"
wheel=$(ls "$work"/dist/loadfactor-[0-9]*.whl)
install_wheel
cd "$work"
export XDG_CACHE_HOME="$work/cache"
"$work/empty/bin/loadfactor" demo --brief
"$work/empty/bin/python" -m loadfactor_agent --help >/dev/null
echo "$(basename "$wheel") is built twice to the same bytes, installs into an empty environment and runs the demo"
