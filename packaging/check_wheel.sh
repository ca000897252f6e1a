#!/usr/bin/env bash
# Builds the sdists and wheels of the three distributions, installs them into an empty environment and runs `loadfactor demo` there.
. "$(dirname "$0")/wheels.sh"

build_wheel packages/agent loadfactor_agent
build_wheel packages/track loadfactor_track
build_wheel . loadfactor
install_wheel
cd "$work"
XDG_CACHE_HOME="$work/cache" "$work/empty/bin/loadfactor" demo --brief
"$work/empty/bin/python" -m loadfactor_agent --help >/dev/null
echo "$(basename "$wheel") installs into an empty environment and runs the demo"
