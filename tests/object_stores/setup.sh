#!/usr/bin/env bash
# Installs Azurite into .azurite-env as package-lock.json pins it, by hash, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=tests/object_stores
cmp -s $here/package-lock.json .azurite-env/package-lock.json && [ -d .azurite-env/node_modules ] && exit
echo "setup: installing Azurite into .azurite-env (once, a minute)"
rm -rf .azurite-env
mkdir .azurite-env
cp $here/package.json $here/package-lock.json .azurite-env/
(cd .azurite-env && npm ci --silent --no-audit --no-fund --ignore-scripts) || { rm -rf .azurite-env; exit 1; }
