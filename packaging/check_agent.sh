#!/usr/bin/env bash
# Builds the agent's own sdist and wheel, installs it into an empty environment and reads the fake driver of the tests once.
. "$(dirname "$0")/wheels.sh"
cmp LICENSE packages/agent/LICENSE

build_wheel packages/agent loadfactor_agent
install_wheel
for heavy in duckdb numba numpy pyarrow grpc loadfactor; do
  ! "$work/empty/bin/python" -c "import $heavy" 2>/dev/null || { echo "loadfactor-agent brings $heavy with it" >&2; exit 1; }
done
cd "$work"
empty/bin/loadfactor-agent --help >/dev/null
size=$(du -sm "$work/empty/lib" | cut -f1)
cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 "$OLDPWD/packages/agent/tests/fake_nvml.c" -o libnvidia-ml.so.1
LD_LIBRARY_PATH="$work" empty/bin/loadfactor-agent --once > page
grep -q '^DCGM_FI_DEV_POWER_USAGE{.*gpu="7".*} 350$' page || { echo "the agent does not read the fake driver:" >&2; head page >&2; exit 1; }
empty/bin/pip install --quiet --disable-pip-version-check "$wheel[kubernetes]"
empty/bin/python -c 'import grpc'
echo "$(basename "$wheel") installs into an empty environment ($size MB) and reads $(grep -c ^DCGM page) values of the fake driver"
