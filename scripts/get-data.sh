#!/bin/sh
# Gets data sets that the examples name but the repository does not hold, from Debian packages only.
# usage: get-data.sh fashion-mnist     70,000 images of 28x28, in /usr/share/datasets/fashion-mnist
#        get-data.sh samples           makes datasets/samples/*.csv and digits-*.gz anew
# Exit: 0 the data is there, 2 usage, 6 it could not be had.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
fashion-mnist)
    ./scripts/setup.sh data
    for part in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        file=/usr/share/datasets/fashion-mnist/$part-ubyte.gz
        gzip -t "$file" || { echo "get-data.sh: $file is missing or damaged" >&2; exit 6; }
    done
    echo "/usr/share/datasets/fashion-mnist"
    ;;
samples)
    ./datasets/samples/make.sh || exit 6
    echo "datasets/samples"
    ;;
*)
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
    ;;
esac
