#!/bin/sh
# Attention's gradient by the kernel that takes whole heads (Hopper), 72 heads of 64 in every step, against the
# library's, which micro batches of 24 heads get: the losses of ten updates in bf16 stay together, and two runs have
# the same bits.
. "$(dirname "$0")/../e2e/common.inc"
device=${DEVICE:-cuda}
needs_device "attention by heads"
sed 's/d: 64, ctx: 64/d: 192, ctx: 640/; s/heads: 4, causal: true, bias: false/heads: 3, causal: true/; s/batch: 8/batch: {global: 24}/; s/for: 200 steps/for: 10 steps\n  precision: bf16/; s|../../datasets|'"$PWD"'/datasets|' tests/gpu/text.yaml >"$work/text.yaml"
sums() { # PLAN: nodes that sum columns alone
    grep -c ' bias_bwd\.' "$1"
}
loss() { # NAME OVERRIDE...
    loss_name=$1
    shift
    "$dltrain" train "$work/text.yaml" "$@" --device "$device" --out "$work/$loss_name" >"$work/log" 2>&1 && column "$work/$loss_name" train.loss >"$work/$loss_name.loss"
}
"$dltrain" plan "$work/text.yaml" --dump plan --device "$device" >"$work/heads.plan" 2>"$work/log"
if ! grep -q 'attention_bwd\.cuda\.hopper' "$work/heads.plan"; then
    echo "skip attention by heads (no kernel of this device takes them)"
    exit 0
fi
grep -q 'attention_fwd\.cuda\.hopper' "$work/heads.plan"
verdict "forward by its own kernel" $? "$work/heads.plan"
loss heads
[ "$(wc -l <"$work/heads.loss")" -eq 10 ]
verdict "ten updates" $? "$work/log"
loss again
tensors "$work/heads/last.bin" >"$work/a" && tensors "$work/again/last.bin" | cmp -s - "$work/a"
verdict "twice the same bits" $?
"$dltrain" plan "$work/text.yaml" train.batch.micro=8 --dump plan --device "$device" >"$work/plan" 2>"$work/log"
grep -q 'attention_bwd\.cuda\.dnn' "$work/plan" || grep -q 'attention_bwd\.cuda\.flash' "$work/plan"
verdict "few heads at a time go another way" $? "$work/plan"
loss micro train.batch.micro=8
d=$(distance "$work/heads.loss" "$work/micro.loss")
awk -v d="$d" 'BEGIN { exit !(d == d + 0 && d < 0.005) }'
verdict "both ways: distance $d" $? "$work/log"
"$dltrain" plan "$work/text.yaml" 'passes={fuse: {attention_bias: off}}' --dump plan --device "$device" >"$work/apart.plan" 2>"$work/log"
[ "$(sums "$work/apart.plan")" -eq $(($(sums "$work/heads.plan") + 2)) ]
verdict "the biases of two blocks get their gradients inside" $? "$work/apart.plan"
loss apart 'passes={fuse: {attention_bias: off}}'
d=$(distance "$work/heads.loss" "$work/apart.loss")
awk -v d="$d" 'BEGIN { exit !(d == d + 0 && d < 0.005) }'
verdict "inside and apart: distance $d" $? "$work/log"
