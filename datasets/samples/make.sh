#!/bin/sh
# Makes iris*.csv, wine.csv and digits-*.gz out of Debian's python3-sklearn, which ships the originals.
# usage: make.sh [FOLDER of sklearn/datasets/data]    (default: apt-get download into a temporary folder)
# Needs sh, awk, gzip; apt-get and dpkg-deb for the default.
set -eu
out=$(cd "$(dirname "$0")" && pwd)
data=${1:-}
if [ -z "$data" ]; then
    temp=$(mktemp -d)
    trap 'rm -rf "$temp"' EXIT
    (cd "$temp" && apt-get download python3-sklearn >/dev/null && dpkg-deb -x python3-sklearn_*.deb .)
    data=$temp/usr/lib/python3/dist-packages/sklearn/datasets/data
fi

# "n,features,name0,name1,..." and rows that end in a class number -> a header and rows that end in a name
table() { # source, header
    echo "$2"
    awk -F, 'NR == 1 { for (i = 3; i <= NF; i++) name[i - 3] = $i; next }
        { for (i = 1; i < NF; i++) printf "%s,", $i; print name[$NF + 0] }' "$1"
}
table "$data/iris.csv" sepal_length,sepal_width,petal_length,petal_width,species >"$out/iris.csv"
awk 'NR == 1 || (NR - 1) % 5 != 0' "$out/iris.csv" >"$out/iris_train.csv"
awk 'NR == 1 || (NR - 1) % 5 == 0' "$out/iris.csv" >"$out/iris_test.csv"
table "$data/wine_data.csv" alcohol,malic_acid,ash,alcalinity_of_ash,magnesium,total_phenols,flavanoids,\
nonflavanoid_phenols,proanthocyanins,color_intensity,hue,od280_od315,proline,cultivar >"$out/wine.csv"

# 64 pixels from 0 to 16 and a class -> IDX of u8: pixels scaled to 0..255 (v * 255 / 16, rounded), classes
bytes() { # lines of octal escapes -> bytes
    while IFS= read -r line; do
        # shellcheck disable=SC2059
        printf "$line"
    done
}
{
    printf '%s\n' '\000\000\010\003\000\000\007\005\000\000\000\010\000\000\000\010' # u8, 1797 x 8 x 8
    gzip -dc "$data/digits.csv.gz" |
        awk -F, '{ for (i = 1; i <= 64; i++) printf "\\%03o", int($i * 255 / 16 + 0.5); print "" }'
} | bytes | gzip -9n >"$out/digits-images.idx3.gz"
{
    printf '%s\n' '\000\000\010\001\000\000\007\005' # u8, 1797
    gzip -dc "$data/digits.csv.gz" | awk -F, '{ printf "\\%03o\n", $65 }'
} | bytes | gzip -9n >"$out/digits-labels.idx1.gz"
