#!/bin/sh
# plan --what-if on a GPU: the times that it forecasts for recompute: none, mlp and blocks against the steps
# themselves, for a small GPT and for GPT-2 124M at 32 x 1,024 tokens; within 15%.
. "$(dirname "$0")/../e2e/common.inc"
device=${DEVICE:-cuda}
needs_device "forecasts of times"
[ -z "${EMULATED:-}" ] || { echo "skip forecasts (an emulated GPU has no speed)"; exit 0; }
head -c 1400000 /dev/urandom | od -An -v -tu1 -w2 | awk '{ printf "%c%c", ($1 % 126) + 1, ($2 % 126) + 1 }' >"$work/train_0.bin"
sed '/^  val:/d; /^eval:/d; /^checkpoint:/d; s/^  tokenizer:.*/  cache: host/; s/train_\*.bin"}/train_*.bin", vocab: 50257}/' configs/gpt2.yaml >"$work/gpt2.yaml"

compare() { # NAME ARGUMENTS...
    name=$1
    shift
    "$dltrain" plan "$@" --device "$device" --what-if train.recompute=none,mlp,blocks 2>"$work/log" | sed -n 's/^train.recompute=//p' >"$work/forecast"
    for value in none mlp blocks; do
        ms=$("$dltrain" profile "$@" train.recompute=$value --device "$device" --steps 3 --json 2>>"$work/log" | sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' | head -n 1)
        awk -v value=$value -v got="$ms" '$1 == value { r = $5 / got; printf "%.3f ms forecast, %.3f ms measured, %+.1f%%\n", $5, got, 100 * r - 100; good = r > 0.85 && r < 1.15 } END { exit !good }' \
            "$work/forecast" >"$work/figures" 2>&1
        verdict "forecast of $name, $value: $(cat "$work/figures")" $? "$work/log"
    done
}
compare "a small GPT" configs/shakespeare_char.yaml vars.layers=6 vars.heads=6 vars.d=384 vars.ctx=256 vars.batch=64 vars.drop=0.2 train.precision=bf16
compare "GPT-2 124M" "$work/gpt2.yaml" "vars.dir=$work" 'train.batch={global: 32, micro: 32}' 'train.for=100 steps' 'train.schedule=[{constant: 100%}]'
