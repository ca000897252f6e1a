#!/usr/bin/env bash
# Builds what is shipped twice, which gives the same bytes, installs the wheels into an empty environment and runs `loadfactor demo` there.
. "$(dirname "$0")/wheels.sh"

tests/pinned_environment.sh dist 'CycloneDX and pip-audit'
packaging/make_dist.sh "$work/again"
(umask 077 && packaging/make_dist.sh "$work/dist" >/dev/null)
diff -r "$work/again" "$work/dist"
wheel=$(ls "$work"/dist/loadfactor-[0-9]*.whl)
install_wheel
"$work/empty/bin/python" -m loadfactor_agent --help >/dev/null

# Without a network where this machine lets us: what is installed asks nobody.
alone=(env -i LANG=C.UTF-8)
if unshare --net true 2>/dev/null && command -v ip >/dev/null; then
  alone=(unshare --net env -i LANG=C.UTF-8)
fi
drill() {
  mkdir "$work/home"
  "${alone[@]}" HOME="$work/home" bash -c 'ip link set lo up 2>/dev/null; exec "$@"' drill "$PWD/packaging/drill.sh" "$work/empty/bin" "$PWD/examples"
  rm -rf "$work/home"
}
drill
tested=$("$python" -V)
newest=$python
for version in 3.12 3.13 3.14; do
  for candidate in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python; do
    if "$candidate" -V >/dev/null 2>&1; then newest=$candidate; fi
  done
done
if [ "$("$newest" -V)" != "$tested" ]; then
  rm -rf "$work/empty"
  python=$newest install_wheel
  drill
  tested+=", $("$newest" -V)"
fi
echo "$(basename "$wheel") is built twice to the same bytes, and works from an empty environment, home and cache with $tested"
