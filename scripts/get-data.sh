#!/bin/sh
# Gets data sets that the examples name but the repository does not hold: from Debian packages, or out of an
# archive that lies here already; nothing is downloaded from elsewhere.
# usage: get-data.sh fashion-mnist     70,000 images of 28x28, in /usr/share/datasets/fashion-mnist
#        get-data.sh cifar10 ARCHIVE   data/cifar10/*.bin out of cifar-10-binary.tar.gz, as its authors give
#                                      it at https://www.cs.toronto.edu/~kriz/cifar.html, or out of a JPEG copy
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
cifar10)
    [ -r "${2:-}" ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
    mkdir -p data/cifar10
    if tar -tf "$2" 2>/dev/null | grep -q 'data_batch_1\.bin$'; then
        tar -xf "$2" -C data/cifar10 --strip-components=1 --wildcards '*.bin' || exit 6
    else
        ./scripts/cifar10-from-jpeg.sh "$2" data/cifar10 >/dev/null || exit 6
    fi
    for part in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
        [ "$(wc -c <"data/cifar10/$part.bin")" -eq 30730000 ] ||
            { echo "get-data.sh: data/cifar10/$part.bin is no file of 10,000 images" >&2; exit 6; }
    done
    echo "data/cifar10"
    ;;
samples)
    ./datasets/samples/make.sh || exit 6
    echo "datasets/samples"
    ;;
*)
    sed -n '2,9s/^# //p' "$0" >&2
    exit 2
    ;;
esac
