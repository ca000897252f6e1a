#!/usr/bin/env bash
# Checks the systemd units, with an executable that is there in place of ours.
set -euo pipefail
cd "$(dirname "$0")/systemd"
command -v systemd-analyze >/dev/null || { echo "units: not checked, because there is no systemd-analyze here"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for unit in *.service *.timer; do
  sed 's|/opt/[a-z-]*/bin/[a-z-]*|/bin/true|' "$unit" > "$work/$unit"
done
systemd-analyze verify "$work"/*
for unit in *.service; do
  systemd-analyze security --offline=true --threshold=70 "$work/$unit" | tail -1
done
