#!/usr/bin/env bash
# Runs the steps of the Dockerfile in clean Debian roots and starts what its images start (check_dockerfile.py). Needs root and a mirror of
# Debian: the one that this machine's apt uses. The base image, Debian with Python, is made by debootstrap; it names Python `python3`.
set -euo pipefail
cd "$(dirname "$0")"
[ -f /etc/debian_version ] || { echo "Dockerfile: not checked, because this is no Debian"; exit 0; }
if [ "$(id -u)" -ne 0 ]; then exec sudo --preserve-env "$0"; fi
if ! command -v debootstrap >/dev/null; then
  apt-get update -q || true # an old list may do
  DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends debootstrap
fi
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(grep -shE '^(URIs:|deb )' /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources \
  | sed -nE '1s/^(URIs:|deb( \[.*\])?) +([^ ]+).*/\3/p' || true)
[ -n "$mirror" ] || { echo "Dockerfile: apt names no mirror of Debian" >&2; exit 1; }
work=$(mktemp -d)
trap 'umount -l "$work" && rmdir "$work"' EXIT
mount -t tmpfs tmpfs "$work" # 5 GB of small files: to write and remove them on a disk takes longer than all else
debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$work/base" "$mirror" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
ln -s /usr/bin/python3 "$work/base/usr/local/bin/python"
python3 check_dockerfile.py docker/Dockerfile .. "$work"
