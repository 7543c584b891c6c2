#!/bin/sh
# Bad input as a user meets it: each ends with its exit code, a message that names place, value and rule, and
# nothing half-written: no run folder for a run that never began, no changed byte in one that is there.
. "$(dirname "$0")/common.inc"
chmod 755 "$work"

iris() { # prints a small config, its lines edited by the sed words given
    cat >"$work/iris.yaml" <<END
dltrain: 1
seed: 1
data:
  train: {csv: "$root/datasets/samples/iris_train.csv", target: species}
  test: {csv: "$root/datasets/samples/iris_test.csv", target: species}
  normalize: from train
model:
  - dense: 16
  - relu
  - dense: \${data.classes}
loss: cross_entropy
train:
  for: 60 steps
  batch: 16
  optimizer: {adamw: {lr: 5e-3}}
checkpoint: {every: 20 steps, keep: {last: 2}}
END
    sed "$@" "$work/iris.yaml"
}
refused() { # NAME CODE PATTERN CONFIG [WORD...]: train says so, and leaves nothing behind
    label=$1 want=$2 words=$3 config=$4
    shift 4
    answers "$label" "$want" "$words" "$dltrain" train "$config" "$@" --device cpu --out "$work/never"
    [ ! -e "$work/never" ]
    verdict "$label: nothing is left" $?
}

# ---- config: exit 2
iris 's/^seed/sede/' >"$work/c.yaml"
refused "unknown key" 2 "c.yaml:2:1: error: .*'sede'.*did you mean 'seed'" "$work/c.yaml"
iris 's/^loss:/lr: 1e-3\nloss:/' >"$work/c.yaml"
refused "misplaced key" 2 "c.yaml:11:1: error: .*'lr'.*optimizer" "$work/c.yaml"
iris 's/batch: 16/batch: many/' >"$work/c.yaml"
refused "wrong type" 2 "c.yaml:14:10: error: train.batch.global: .*many" "$work/c.yaml"
iris 's/- relu/- {dense: 8, name: a}\n  - {dense: 9, name: b}\n  - add: [a, b]/' >"$work/c.yaml"
refused "shapes that do not fit" 2 "c.yaml:11:5: error: .*a.*\[16, 8\].*b.*\[16, 9\]" "$work/c.yaml"
refused "bad override" 2 "<command line>" "$work/iris.yaml" lr=-1
refused "no config" 2 "$work/absent.yaml" "$work/absent.yaml"

# ---- data: exit 3
iris 's/iris_train.csv/absent.csv/' >"$work/c.yaml"
refused "missing data" 3 "c.yaml:4:.*error: .*datasets/samples/absent.csv.*No such file" "$work/c.yaml"
digits() { # IMAGES LABELS
    cat <<END
dltrain: 1
data: {train: {idx: "$1", labels: "$2"}, test: 20% of train}
model: [flatten, dense: 10]
loss: cross_entropy
train: {for: 3 steps, batch: 8, optimizer: {sgd: {lr: 0.1}}}
END
}
images=$root/datasets/samples/digits-images.idx3.gz labels=$root/datasets/samples/digits-labels.idx1.gz
byte() { # FILE OFFSET VALUE(octal): sets one byte
    # shellcheck disable=SC2059
    printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
head -c 20000 "$images" >"$work/cut.gz"
digits "$work/cut.gz" "$labels" >"$work/c.yaml"
refused "cut gzip" 3 "cut.gz" "$work/c.yaml"
cp "$images" "$work/flip.gz"
byte "$work/flip.gz" 9000 377
byte "$work/flip.gz" 9001 0
digits "$work/flip.gz" "$labels" >"$work/c.yaml"
refused "damaged gzip" 3 "flip.gz" "$work/c.yaml"
gzip -dc "$labels" >"$work/labels"
head -c 1000 "$work/labels" >"$work/short"
digits "$images" "$work/short" >"$work/c.yaml"
refused "cut labels" 3 "$work/short" "$work/c.yaml"
digits "$labels" "$images" >"$work/c.yaml"
refused "images and labels swapped" 3 "digits-" "$work/c.yaml"
cp datasets/samples/cifar10_small_train.bin "$work/cifar.bin"
byte "$work/cifar.bin" $((3073 * 41)) 12
cat >"$work/c.yaml" <<END
dltrain: 1
data: {train: {cifar10: "$work/cifar.bin"}}
model: [flatten, dense: 10]
loss: cross_entropy
train: {for: 3 steps, batch: 8, optimizer: {sgd: {lr: 0.1}}}
END
refused "label out of range" 3 "cifar.bin.*41.*10" "$work/c.yaml"
head -c 100000 "$work/cifar.bin" >"$work/cut.bin"
sed 's/cifar.bin/cut.bin/' "$work/c.yaml" >"$work/d.yaml"
refused "cut images" 3 "cut.bin.*100000" "$work/d.yaml"
sed 's/setosa$/sunflower/' datasets/samples/iris_test.csv >"$work/iris_test.csv"
iris "s|\"[^\"]*iris_test.csv|\"$work/iris_test.csv|" >"$work/c.yaml"
refused "a class that train does not have" 3 "iris_test.csv: error: line 2, .*sunflower" "$work/c.yaml"
sed '7s/^[0-9.]*,/wide,/' datasets/samples/iris_train.csv >"$work/iris_train.csv"
iris "s|\"[^\"]*iris_train.csv|\"$work/iris_train.csv|" >"$work/c.yaml"
refused "a word among numbers" 3 "iris_train.csv: error: line 7, .*wide" "$work/c.yaml"

# ---- checkpoints: exit 4, for every command that reads one
iris '' >"$work/c.yaml"
"$dltrain" train "$work/c.yaml" --device cpu --out "$work/run" >"$work/log" 2>&1
verdict "a good run" $? "$work/log"
good=$work/run/last.bin
size=$(wc -c <"$good")
head=$(od -An -tu8 -N8 "$good" | tr -d ' ')
rejected() { # NAME FILE
    for command in eval resume inspect predict; do
        words=$([ $command != predict ] || echo "$root/datasets/samples/iris_test.csv")
        # shellcheck disable=SC2086
        answers "$1: $command" 4 "error: .*\(damaged\|no checkpoint\)" "$dltrain" $command "$2" $words
    done
    answers "$1: train --init" 4 "error: .*\(damaged\|no checkpoint\)" \
        "$dltrain" train "$work/c.yaml" --init "$2" --device cpu --out "$work/never"
    [ ! -e "$work/never" ]
    verdict "$1: nothing is left" $?
}
mkdir "$work/bad"
for length in 0 7 100 $((head + 8)) $((size / 2)) $((size - 1)); do
    head -c "$length" "$good" >"$work/bad/cut$length.bin"
    rejected "checkpoint cut to $length bytes" "$work/bad/cut$length.bin"
done
for place in 0 9 $((head / 2)) $((head + 8)) $((size - 1)); do
    cp "$good" "$work/bad/flip$place.bin"
    old=$(od -An -to1 -j"$place" -N1 "$good" | tr -d ' ')
    byte "$work/bad/flip$place.bin" "$place" "$(printf '%03o' $((0$old ^ 16)))"
    rejected "checkpoint with byte $place changed" "$work/bad/flip$place.bin"
done
{ cat "$good"; echo; } >"$work/bad/tail.bin"
rejected "checkpoint with a byte more" "$work/bad/tail.bin"
cp configs/iris.yaml "$work/bad/config.bin"
rejected "a config as checkpoint" "$work/bad/config.bin"
[ "$(find "$work/bad" -type f | wc -l)" -eq 13 ]
verdict "refused checkpoints leave no other file" $?

# ---- folders: exit 6
state() { # of a folder: every name and content
    (cd "$1" && find . -type f -exec cksum {} + | sort -k3)
}
state "$work/run" >"$work/before"
answers "second run in a folder" 6 "error: .*$work/run" "$dltrain" train "$work/c.yaml" --device cpu --out "$work/run"
state "$work/run" >"$work/after"
cmp -s "$work/before" "$work/after"
verdict "second run: the first one's files are as they were" $?

iris 's/60 steps/1e9 steps/; s/every: 20 steps/every: 1e8 steps/' >"$work/long.yaml"
"$dltrain" train "$work/long.yaml" --device cpu --out "$work/live" >"$work/log" 2>&1 &
live=$!
i=0
while [ ! -s "$work/live/metrics.jsonl" ] && [ $i -lt 600 ]; do i=$((i + 1)); sleep 0.1; done
answers "second run beside a live one" 6 "process $live" "$dltrain" train "$work/c.yaml" --device cpu --out "$work/live"
kill -INT $live
wait $live
[ $? -eq 130 ] && "$dltrain" eval "$work/live/last.bin" >"$work/log" 2>&1
verdict "the live one goes on undisturbed" $? "$work/log"

as_nobody=
if [ "$(id -u)" -eq 0 ]; then
    as_nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
    $as_nobody true 2>/dev/null || as_nobody=no
fi
mkdir "$work/program" "$work/closed"
cp -L "$dltrain" "$(dirname "$dltrain")"/dltrain-dnnl.so "$work/program/" 2>/dev/null
cp -r datasets/samples "$work/samples"
iris "s|$root/datasets/||; s|\"samples|\"$work/samples|" >"$work/open.yaml"
chmod -R a+rX "$work/program" "$work/samples" "$work/open.yaml"
chmod 555 "$work/closed"
if [ "$as_nobody" = no ]; then
    echo "skip read-only folder (setpriv does not work here)"
else
    # shellcheck disable=SC2086
    answers "read-only folder" 6 "error: cannot create the run folder $work/closed/run: Permission denied" \
        $as_nobody "$work/program/dltrain" train "$work/open.yaml" --device cpu --out "$work/closed/run"
    [ -z "$(ls -A "$work/closed")" ]
    verdict "read-only folder: nothing is left" $?
fi

# a file system of 256 KiB
mkdir "$work/small"
if $mounting mount -t tmpfs -o size=256k none "$work/small" 2>/dev/null; then
    cat >"$work/full.sh" <<END
mount -t tmpfs -o size=256k none "$work/small" || exit 1
head -c 250000 /dev/zero >"$work/small/filler"
"$dltrain" train "$work/c.yaml" --device cpu --out "$work/small/run"
code=\$?
ls -A "$work/small"
exit \$code
END
    answers "full folder" 6 "error: .*small.*\(free\|space\)" $mounting sh "$work/full.sh"
    [ "$(tail -n 1 "$work/answer")" = filler ]
    verdict "full folder: nothing is left" $? "$work/answer"
    becomes_full "a folder that becomes full" 256k "$dltrain" train "$work/long.yaml" "checkpoint.every=1000 steps" \
        log.every="100 steps" --device cpu --out "$work/small/run"
else
    echo "skip full folder (no file system can be mounted here)"
fi
answers "a file that may not grow" 6 "File too large" \
    sh -c "ulimit -f 4; exec '$dltrain' train '$work/c.yaml' --device cpu --out '$work/limited'"
! find "$work/limited" -name '*.tmp.*' 2>/dev/null | grep -q .
verdict "a file that may not grow: no part of it is left" $?

# told before anything is measured or made
too_large "$work/large.yaml"
refused "states larger than the memory" 6 "parameters, gradients and the optimizer's state alone: no batch size makes it fit" "$work/large.yaml"

# A machine with a driver that is told to show no card: `auto` is the CPU, and says so.
cat >"$work/driver.sh" <<END
if [ ! -e /dev/nvidiactl ]; then
    mkdir "$work/dev" && mount --rbind /dev "$work/dev" && mount -t tmpfs none /dev || exit 99
    for f in null urandom shm; do ln -s "$work/dev/\$f" /dev/; done
    : >/dev/nvidiactl
fi
exec "\$@"
END
if $mounting sh "$work/driver.sh" true 2>/dev/null; then
    for shown in "" -1; do
        rmdir "$work/dev" 2>/dev/null
        answers "CUDA_VISIBLE_DEVICES='$shown': auto is the CPU" 0 "cpu: CUDA_VISIBLE_DEVICES shows no GPU" \
            env "CUDA_VISIBLE_DEVICES=$shown" $mounting sh "$work/driver.sh" "$dltrain" train "$work/c.yaml" --device auto --out "$work/auto$shown"
        [ "$(grep -c 'shows no GPU' "$work/answer")" -eq 1 ]
        verdict "and is told in one line" $? "$work/answer"
    done
else
    echo "skip no card shown (no file system can be mounted here)"
fi
