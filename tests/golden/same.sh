#!/bin/sh
# Configs that must mean the same, compared by their resolved form: line ends, byte order marks,
# spellings of numbers, where the program is started from. Cases C01, C02, C08, C10, C14.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
same() { # NAME FILE FILE
    "$dltrain" config "$2" >"$work/one" 2>&1
    code=$?
    if [ $code -eq 3 ]; then # its data set is not installed
        echo "skip $1"
        return
    fi
    "$dltrain" config "$3" >"$work/two" 2>&1 && [ $code -eq 0 ] && cmp -s "$work/one" "$work/two"
    verdict "$1" $?
}

# C10: LF, CRLF, CR, BOM. The copy stands beside the original, for paths are relative to the file.
for config in configs/*.yaml; do
    name=$(basename "$config" .yaml)
    mkdir -p "$work/configs"
    ln -sfn "$root/datasets" "$work/datasets"
    cp "$config" "$work/configs/$name.yaml"
    original=$work/configs/$name.yaml
    for form in crlf cr bom; do
        mkdir -p "$work/configs/$form"
        ln -sfn "$root/datasets" "$work/configs/datasets"
        copy=$work/configs/$form/$name.yaml
        case $form in
        crlf) sed 's/$/\r/' "$original" >"$copy" ;;
        cr) tr '\n' '\r' <"$original" >"$copy" ;;
        bom) { printf '\357\273\277'; cat "$original"; } >"$copy" ;;
        esac
        same "$name $form" "$original" "$copy"
    done
done

run() { # LR SEED STEP: a small run with these three numbers
    cat <<END
dltrain: 1
name: x
seed: $2
data: {train: {synthetic: {shape: [1, 4, 4], classes: 3, samples: 120}}}
model: [flatten, dense: 3]
loss: cross_entropy
train: {for: $3 epochs, batch: 12, optimizer: {adamw: {lr: $1}}}
END
}
# C01: one number, many spellings; and texts that are no number
run 2e-5 1 2 >"$work/base.yaml"
i=0
for lr in 2E-5 2.e-5 .00002 +2e-5 2.0e-05 '"2e-5"' 0.00002 00.00002 "'2e-5'" 20e-6 0.2e-4 2.000e-5 1/50000 "1 / 50000"; do
    i=$((i + 1))
    run "$lr" 1 2 >"$work/lr$i.yaml"
    same "lr $lr" "$work/base.yaml" "$work/lr$i.yaml"
done
for lr in 2e 2e-5x '"2,5"' 0.1.2 1e999 .nan -1 .inf 0x1p-3 1_0 2e--5; do
    run "$lr" 1 2 >"$work/bad.yaml"
    "$dltrain" check "$work/bad.yaml" >"$work/out" 2>&1
    [ $? -eq 2 ] && grep -q "bad.yaml:7:[0-9]*: error: train.optimizer.adamw.lr: " "$work/out"
    verdict "lr $lr is refused" $?
done
# C02: leading zeros are decimal
run 2e-5 777 10 >"$work/decimal.yaml"
run 2e-5 0777 010 >"$work/octal.yaml"
same "leading zeros" "$work/decimal.yaml" "$work/octal.yaml"

# C08: files that are no configs
printf 'a,b\n1,2\n' >"$work/labels.csv"
head -c 4096 /dev/urandom >"$work/model.bin"
: >"$work/none"
for file in "$work/labels.csv" "$work/model.bin" "$work/none" "$work" /dev/null /dev/zero "$work/absent"; do
    timeout 1 "$dltrain" check "$file" >"$work/out" 2>&1
    [ $? -eq 2 ] && grep -q "error: " "$work/out"
    verdict "no config: $(basename "$file")" $?
done

# C14: the same file whatever the current folder, a symbolic link or HOME
mkdir -p "$work/a/cfg" "$work/a/d"
cp datasets/samples/wine.csv "$work/a/d/"
sed 's|../datasets/samples/wine.csv|../d/wine.csv|' configs/wine.yaml >"$work/a/cfg/x.yaml"
ln -s "$work/a/cfg" "$work/link"
"$dltrain" check "$work/a/cfg/x.yaml" >"$work/want" 2>&1
verdict "paths: absolute" $?
(cd / && "$dltrain" check "$work/a/cfg/x.yaml" | sed 's/^[^:]*//') >"$work/from_root"
(cd "$work/a" && "$dltrain" check cfg/x.yaml | sed 's/^[^:]*//') >"$work/from_a"
(cd "$work/a/cfg" && env -u HOME "$dltrain" check x.yaml | sed 's/^[^:]*//') >"$work/from_cfg"
"$dltrain" check "$work/link/x.yaml" | sed 's/^[^:]*//' >"$work/from_link"
sed 's/^[^:]*//' "$work/want" >"$work/tail"
for place in root a cfg link; do
    cmp -s "$work/tail" "$work/from_$place"
    verdict "paths: from $place" $?
done
sed -i 's|../d/wine.csv|../d/nobody.csv|' "$work/a/cfg/x.yaml"
(cd "$work/a" && "$dltrain" check cfg/x.yaml) >"$work/out" 2>&1
grep -q "$work/a/cfg/../d/nobody.csv\|$work/a/d/nobody.csv" "$work/out"
verdict "paths: the message shows the absolute path tried" $?
