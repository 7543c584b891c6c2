#!/bin/bash
# dltrain export: every format holds the checkpoint's weights, to the bit.
cd "$(dirname "$0")/../.." || exit 1
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
cat >net.yaml <<'END'
data: {train: {synthetic: {shape: [2, 5, 5], classes: 3, samples: 40}}}
model: [{conv: {filters: 4, kernel: 3}}, batch_norm, relu, flatten, {dense: 3}]
loss: cross_entropy
train: {for: 6 steps, batch: 10, optimizer: {adamw: {lr: 0.1}}, ema: 0.5}
END
"$dltrain" train net.yaml --out run --quiet >/dev/null 2>&1
# name and crc32 of every weight, as inspect has them
weights() { "$dltrain" inspect run | sed -n 's/^  \([a-z_]*\.[a-z_]*\) .*crc32 \([0-9a-f]*\)$/\1 \2/p' | sort; }
[ "$(weights | wc -l)" -eq 10 ] || echo "not ok the run that is exported"

for format in safetensors npz c-header; do
    "$dltrain" export run --to $format >out 2>&1 && grep -q ': 10 tensors, ' out
    verdict "export --to $format" $?
done
cat >crc.c <<'END'
#include <stdio.h>
#include <zlib.h>
#include "run/weights.h"
#define SHOW(id, name) printf("%s %08lx\n", name, crc32(0, (const unsigned char *)id, sizeof id))
int main(void)
{
END
weights | while read -r name _; do echo "SHOW($(echo "$name" | tr . _), \"$name\");"; done >>crc.c
echo 'return 0; }' >>crc.c
gcc -o crc crc.c -lz 2>out && ./crc | sort | cmp -s - <(weights)
verdict "the C header compiles and holds the weights to the bit" $?
gcc -std=c99 -pedantic-errors -fsyntax-only -x c run/weights.h 2>out
verdict "the C header is plain C99" $?
# safetensors: offsets from the header, contents by their checksum
cat >cut.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
int main(int argc, char **argv) /* FILE NAME: crc32 of a tensor; 1 when the file has other lengths */
{
    static char b[1 << 20];
    FILE *f = fopen(argv[1], "rb");
    size_t n = fread(b, 1, sizeof b - 1, f), head;
    memcpy(&head, b, 8);
    char key[200], *at;
    snprintf(key, sizeof key, "\"%s\":", argv[2]);
    if (argc != 3 || head % 8 || !(at = strstr(b + 8, key))) return 1;
    long from = atol(strstr(at, "offsets\":[") + 10), to = atol(strchr(strstr(at, "offsets\":["), ',') + 1);
    if (8 + head + (size_t)to > n) return 1;
    printf("%s %08lx\n", argv[2], crc32(0, (unsigned char *)b + 8 + head + from, (unsigned)(to - from)));
    return 0;
}
END
gcc -o cut cut.c -lz 2>out
weights | while read -r name _; do ./cut run/weights.safetensors "$name"; done | cmp -s - <(weights)
verdict "the safetensors file holds the weights to the bit" $?
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    /usr/bin/python3 -c '
import numpy, zlib
z = numpy.load("run/weights.npz")
for k in sorted(z.files): print(k, "%08x" % zlib.crc32(z[k].tobytes()))
assert z["conv.weight"].shape == (4, 2, 3, 3) and z["conv.weight"].dtype == numpy.float32' 2>out | sort | cmp -s - <(weights)
    verdict "NumPy reads the archive to the bit" $?
else
    echo "skip NumPy reads the archive (python3-numpy is not installed)"
fi
"$dltrain" export run --to npz --out two.npz >/dev/null && cmp -s two.npz run/weights.npz
verdict "the same weights give the same file" $?
"$dltrain" export run/last.bin --to c-header --weights ema --out ema.h >/dev/null && ! cmp -s ema.h run/weights.h && [ "$(grep -c '^static const' ema.h)" -eq 10 ]
verdict "--weights ema exports the averages" $?
for words in "run" "run --to onnx" "run --to npz --weights both" "nobody --to npz"; do
    # shellcheck disable=SC2086
    "$dltrain" export $words >out 2>&1
    code=$?
    { [ $code -eq 2 ] || { [ "$words" = "nobody --to npz" ] && [ $code -eq 4 ]; }; } && grep -q 'error: ' out
    verdict "refused: export $words" $?
done
"$dltrain" train net.yaml train.ema=0 --out plain --quiet >/dev/null 2>&1
"$dltrain" export plain --to npz --weights ema >out 2>&1
[ $? -eq 4 ] && [ ! -e plain/weights.npz ]
verdict "--weights ema of a run without averages is refused, and no file is left" $?
printf '\1' | dd of=run/last.bin bs=1 seek=5000 conv=notrunc 2>/dev/null
"$dltrain" export run --to npz --out bad.npz >out 2>&1
[ $? -eq 4 ] && [ ! -e bad.npz ]
verdict "a damaged checkpoint is not exported" $?
