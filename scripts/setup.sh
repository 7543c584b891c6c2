#!/bin/sh
# Installs the Debian or Ubuntu packages that dltrain needs, when they are missing, and says what it does.
# usage: setup.sh [build] [test] [lint] [data]      (default: build)
# Needs a shell and apt-get, and root or sudo when something is missing.
set -eu

packages() {
    case $1 in
    build) echo "make gcc libc6-dev libyaml-dev libjansson-dev zlib1g-dev libdnnl-dev" ;;
    test) echo "libcmocka-dev" ;;
    lint) echo "clang-format clang-tidy cppcheck" ;;
    data) echo "dataset-fashion-mnist" ;;
    *) echo "setup.sh: unknown group '$1'; known: build test lint data" >&2; exit 2 ;;
    esac
}

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup.sh: no apt-get here; install the equivalents of: $(packages build) $(packages test)" >&2
    exit 6
fi
[ $# -gt 0 ] || set -- build
missing=
for group in "$@"; do
    for p in $(packages "$group"); do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
    done
done
[ -n "$missing" ] || exit 0
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "setup.sh: run as root: apt-get install$missing" >&2; exit 6; }
    as_root=sudo
fi
echo "setup.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$as_root apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $as_root apt-get update >/dev/null
    $as_root apt-get install -y --no-install-recommends $missing >/dev/null
}
