#!/usr/bin/env bash
# Renders the chart with Helm and checks its objects against the Kubernetes schema (check_chart.py), in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")"
for python in python3.14 python3.13 python3.12 "$HOME"/.pyenv/versions/3.1[234]*/bin/python; do
  command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break
  python=
done
[ -n "$python" ] || { echo "chart: not rendered, because the library of Helm needs Python 3.12 or newer"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/chart"
"$work/chart/bin/pip" install --quiet --disable-pip-version-check "helm-sdkpy==0.1.32" "kubernetes-validate>=1.31" pyyaml
"$work/chart/bin/python" check_chart.py
