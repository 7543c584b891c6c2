#!/bin/sh
# Gets data sets that the examples name but the repository does not hold: from Debian packages, or out of an
# archive that lies here already; only tinyshakespeare comes from the network.
# usage: get-data.sh fashion-mnist     70,000 images of 28x28, in /usr/share/datasets/fashion-mnist
#        get-data.sh cifar10 ARCHIVE   data/cifar10/*.bin out of cifar-10-binary.tar.gz, as its authors give
#                                      it at https://www.cs.toronto.edu/~kriz/cifar.html, or out of a JPEG copy
#        get-data.sh tinyshakespeare   1,115,394 bytes of plays, into data/tinyshakespeare.txt (from the
#                                      network: karpathy/char-rnn on GitHub; checked by its SHA-256)
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
    [ -r "${2:-}" ] || { sed -n '2,11s/^# //p' "$0" >&2; exit 2; }
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
tinyshakespeare)
    file=data/tinyshakespeare.txt
    sum=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
    url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
    good() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$sum" ]; }
    mkdir -p data
    if ! good "$file"; then
        { curl -fsSL -o "$file.part" "$url" || wget -qO "$file.part" "$url"; } 2>/dev/null ||
            { rm -f "$file.part"; echo "get-data.sh: $url could not be had" >&2; exit 6; }
        good "$file.part" || { rm -f "$file.part"; echo "get-data.sh: $url is not the file it was" >&2; exit 6; }
        mv "$file.part" "$file"
    fi
    echo "$file"
    ;;
samples)
    ./datasets/samples/make.sh || exit 6
    echo "datasets/samples"
    ;;
*)
    sed -n '2,11s/^# //p' "$0" >&2
    exit 2
    ;;
esac
