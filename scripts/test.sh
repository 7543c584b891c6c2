#!/bin/sh
# Installs what is missing, builds, and runs every test that needs no GPU.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh build test
./scripts/setup.sh data || echo "test.sh: dataset-fashion-mnist cannot be had; its tests are skipped"
make -s -j"$(nproc)" all tests
exec make -s test
