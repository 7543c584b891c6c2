#!/bin/sh
# Products in whole tiles with an activation behind them, and their gradients, by the kernels made for them
# (Hopper), which work on tiles in turn: a net with four pairs of tiles for each multiprocessor's pair. Its twenty
# updates in bf16, 256 wide so that no smaller product is as fast, lie within half a roundoff (2^-9) of those without the rules that lead there.
. "$(dirname "$0")/../e2e/common.inc"
device=${DEVICE:-cuda}
needs_device "wide products"
sed 's/dense: 512}, {gelu/dense: 2048}, {gelu/; s/dim: 64/dim: 256/; s/{dense: 64}/{dense: 256}/; s/heads: 1/heads: 4/; s/for: 20 steps/for: 20 steps, precision: bf16/; s|../../datasets|'"$PWD"'/datasets|' tests/gpu/wide.yaml >"$work/wide.yaml"
"$dltrain" plan "$work/wide.yaml" --dump plan --device "$device" >"$work/plan" 2>"$work/log"
if ! grep -q 'cuda\.wide' "$work/plan"; then
    echo "skip wide products (no kernel of this device takes them)"
    exit 0
fi
[ "$(grep -c 'matmul\.cuda\.wide' "$work/plan")" -ge 1 ] && [ "$(grep -c 'linear_act_bwd\.cuda\.wide' "$work/plan")" -ge 1 ]
verdict "both kernels are chosen" $? "$work/plan"
loss() { # OVERRIDE...
    rm -rf "$work/run"
    "$dltrain" train "$work/wide.yaml" "$@" --device "$device" --out "$work/run" >"$work/log" 2>&1 && column "$work/run" train.loss
}
loss >"$work/wide"
[ "$(wc -l <"$work/wide")" -eq 20 ]
verdict "twenty updates" $? "$work/log"
loss 'passes={fuse: {linear_backward: off, activation: off}}' >"$work/narrow"
d=$(distance "$work/wide" "$work/narrow")
awk -v d="$d" 'BEGIN { exit !(d == d + 0 && d < 0.002) }'
verdict "with and without: distance $d" $? "$work/log"
loss >"$work/again"
cmp -s "$work/wide" "$work/again"
verdict "twice the same bits" $?
