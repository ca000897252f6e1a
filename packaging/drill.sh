#!/usr/bin/env bash
# drill.sh BIN EXAMPLES: what a newcomer does with an installation, in an empty home, without compiler and network: demo, import, report, up, pages.
set -euo pipefail
export PATH=$1:/usr/bin:/bin CC=false CXX=false
examples=$2
cd "$HOME"
loadfactor demo --brief
loadfactor import tables "$examples/october" --store books
loadfactor report --store books --brief
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
loadfactor up --store books --listen "127.0.0.1:$port" > up.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
python - "http://127.0.0.1:$port" <<'PYTHON'
import sys, time, urllib.request

for path, expected in (("/health", '"status"'), ("/", "<html"), ("/jobs", "<html"), ("/money", "<html"), ("/metrics", "loadfactor_"),
                       ("/api/v1/readings?metric=utilization", '"utilization"')):
    for again in range(120):
        try:
            with urllib.request.urlopen(sys.argv[1] + path, timeout=60) as answer:
                text = answer.read().decode()
            break
        except OSError:
            if again == 119:
                raise
            time.sleep(0.5)
    assert expected in text, f"{path}: {text[:300]}"
print("up and its pages answer")
PYTHON
kill $server
wait $server
