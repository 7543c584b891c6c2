#!/bin/sh
# One command from a fresh clone to a trained network: installs what is missing, builds, trains the
# Fashion-MNIST MLP (the committed handwritten digits where that package cannot be had), evaluates the
# checkpoint and prints its accuracy.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh build
config=configs/fashion_mlp.yaml
./scripts/setup.sh data || {
    config=configs/digits_mlp.yaml
    echo "quickstart.sh: dataset-fashion-mnist cannot be had here; training on the committed digits"
}
echo "quickstart.sh: building (minutes where CUDA's compiler is installed)"
make -s -j"$(nproc)"
out=$(mktemp -d)/run
./dltrain train "$config" --out "$out"
echo
echo "evaluating $out/last.bin from the file alone:"
./dltrain eval "$out/last.bin"
