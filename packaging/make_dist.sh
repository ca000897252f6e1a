#!/usr/bin/env bash
# make_dist.sh [FOLDER]: sdists and wheels of the three distributions as they are committed, an SBOM and checksums, into FOLDER (dist/).
# The same commit gives the same bytes: their times are that of the commit.
to=$(realpath -m "${1:-dist}")
. "$(dirname "$0")/wheels.sh"
tools=$PWD/.dist-env/bin
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} || { echo "dist: what is built is a commit; clone the repository with git" >&2; exit 1; }
export SOURCE_DATE_EPOCH
[ -z "$(git status --porcelain)" ] || echo "dist: what is not committed is not in it" >&2
umask 022
mkdir -p "$work/source" "$to"
git archive HEAD | tar -x -C "$work/source"
(
  cd "$work/source"
  build_wheel packages/agent loadfactor_agent
  build_wheel packages/track loadfactor_track
  build_wheel . loadfactor
)
"$tools/cyclonedx-py" environment --pyproject pyproject.toml --mc-type application --output-reproducible --of JSON \
  -o "$work/all.json" "$python" 2>/dev/null
rm -f "$to"/loadfactor{,_agent,_track}-[0-9]* "$to/SHA256SUMS"
mv "$work"/*.tar.gz "$work"/dist/*.whl "$to"
"$python" packaging/dist/sbom.py "$work/all.json" "$to"
(cd "$to" && sha256sum loadfactor*-[0-9]* > SHA256SUMS)
(cd "$to" && ls -sh loadfactor*-[0-9]*)
