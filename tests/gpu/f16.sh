#!/bin/sh
# f16 with its loss scale on the device: how the scale moves, that updates left out change nothing, that
# the run's guard still sees what is no overflow, and that rows, checkpoints and resumed runs carry it.
DEVICE=${DEVICE:-cuda}
. "$(dirname "$0")/../e2e/common.inc"
needs_device "f16"

train() { # NAME OVERRIDE...
    train_name=$1
    shift
    rm -rf "$work/$train_name"
    "$dltrain" train tests/gpu/mlp.yaml train.precision=f16 train.ema=0 "$@" --device "$device" --out "$work/$train_name" \
        >"$work/$train_name.log" 2>&1
}
is() { # NAME VALUE EXPECTED
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(a + 0 == b + 0 && a != "") }'
    verdict "$1: $2, expected $3" $?
}
# Twenty updates that all fit: the scale doubles every five.
train grows 'train.for=20 steps' 'train.loss_scale={init: 8, interval: 5}'
verdict "twenty updates" $? "$work/grows.log"
is "the scale doubles every five updates" "$(figure "$work/grows" loss_scale)" 128
is "none was left out" "$(figure "$work/grows" skipped)" 0
column "$work/grows" loss_scale | tr '\n' ' ' | grep -q '^8\(.0\)* 8\(.0\)* 8\(.0\)* 8\(.0\)* 16\(.0\)* '
verdict "every row tells the scale" $? "$work/grows/metrics.jsonl"

# Far too large: updates are left out until the scale fits; by then nothing has changed.
train falls 'train.for=40 steps' 'train.loss_scale={init: 1e20, backoff: 0.01}'
verdict "a scale that is far too large is no divergence" $? "$work/falls.log"
skipped=$(figure "$work/falls" skipped) scale=$(figure "$work/falls" loss_scale)
awk -v s="$skipped" -v scale="$scale" 'BEGIN { exit !(s >= 4 && s <= 9 && scale <= 1e12 && scale >= 1) }'
verdict "some updates were left out ($skipped), then the scale fits ($scale)" $?
[ "$(column "$work/falls" grad_norm | head -n "$skipped" | sort -u)" = 0 ]
verdict "rows of updates left out tell the last norm that there was" $? "$work/falls/metrics.jsonl"
awk -v a="$(column "$work/falls" train.loss | head -n 1)" -v b="$(figure "$work/falls" train.loss)" 'BEGIN { exit !(b + 0 == b && b < a) }'
verdict "and the loss falls" $?
train three 'train.for=3 steps' 'train.loss_scale={init: 1e30, backoff: 0.999}'
train nine 'train.for=9 steps' 'train.loss_scale={init: 1e30, backoff: 0.999}'
is "nine of nine were left out" "$(figure "$work/nine" skipped)" 9
is "updates left out change no weight" "$(figure "$work/nine" test.loss)" "$(figure "$work/three" test.loss)"

# A scale of 1 cannot fall: what is not finite then is the guard's.
train diverges 'train.for=60 steps' 'train.optimizer={sgd: {lr: 10}}' 'train.clip={norm: 1e9}' 'train.loss_scale={init: 64, backoff: 0.01}'
[ $? -eq 7 ] && grep -q 'not finite' "$work/diverges.log"
verdict "what diverges ends with 7" $? "$work/diverges.log"
train skips 'train.for=40 steps' 'train.optimizer={sgd: {lr: 10}}' 'train.clip={norm: 1e9}' 'train.loss_scale={init: 64, backoff: 0.01}' 'train.guard={nonfinite: skip, limit: 100}'
verdict "or is left out, as the guard says" $? "$work/skips.log"

# The state is part of the checkpoint: the next precision may do without it, the next f16 run may begin anew.
"$dltrain" inspect "$work/grows/last.bin" | grep -q 'state/loss_scale'
verdict "checkpoints hold it" $?
train half 'train.for=20 steps' 'train.loss_scale={init: 8, interval: 5}' --stop-at 10
"$dltrain" resume "$work/half" --device "$device" >"$work/log" 2>&1
is "a resumed run has the same scale" "$(figure "$work/half" loss_scale)" 128
is "and the same loss" "$(figure "$work/half" train.loss)" "$(figure "$work/grows" train.loss)"
train half 'train.for=20 steps' --stop-at 10
"$dltrain" resume "$work/half" train.precision=bf16 --device "$device" >"$work/log" 2>&1
verdict "f16 goes on in bf16" $? "$work/log"
train half 'train.for=20 steps' train.precision=bf16 --stop-at 10
"$dltrain" resume "$work/half" train.precision=f16 --device "$device" >"$work/log" 2>&1 && grep -q 'loss scale starts anew' "$work/log"
verdict "bf16 goes on in f16, and says that the scale is new" $? "$work/log"
answers "the CPU refuses f16 and says why" 2 'has no kernels for f16; tf32 and f32 are there' \
    "$dltrain" train tests/gpu/mlp.yaml train.precision=f16 --device cpu --out "$work/cpu"
