#!/bin/sh
# The same twenty updates with every fusion, with none, and with each rule switched off in turn: losses agree
# to the rounding of f32 (sums in another order: 1e-5 of a loss near 2), and the rule is one that the
# network meets: with it off, another plan comes out. DEVICE=cuda: on the GPU.
. "$(dirname "$0")/common.inc"
steps=${STEPS:-20}
[ "$device" = cpu ] || needs_device "fused against unfused"
rules=$(sed -n 's/^    {"\([a-z_]*\)", "[^"]*".*/\1/p' core/passes/fuse_rules.c)
[ "$(echo "$rules" | wc -l)" -ge 10 ]
verdict "the rules are found" $?

plan() { # NET OVERRIDE...
    plan_net=$1
    shift
    "$dltrain" plan "tests/gpu/$plan_net.yaml" "$@" --dump plan --device "$device" 2>>"$work/log"
}
loss() { # NET OVERRIDE...
    loss_net=$1
    shift
    rm -rf "$work/run"
    "$dltrain" train "tests/gpu/$loss_net.yaml" train.precision=f32 "train.for=$steps steps" "$@" --device "$device" \
        --out "$work/run" >"$work/log" 2>&1 && column "$work/run" train.loss
}
met=
# the rules of large tensors, which a CPU does not use, need one
wide=$([ "$device" = cpu ] || [ -n "${EMULATED:-}" ] || echo wide)
for net in ${NETS:-mlp conv text $wide}; do
    loss $net >"$work/fused"
    [ "$(wc -l <"$work/fused")" -eq "$steps" ]
    verdict "$net: all rules" $? "$work/log"
    plan $net >"$work/plan"
    all=
    for rule in $rules; do
        all="$all${all:+, }$rule: off"
        plan $net "passes={fuse: {$rule: off}}" >"$work/other"
        cmp -s "$work/plan" "$work/other" && continue
        met="$met $rule"
        loss $net "passes={fuse: {$rule: off}}" >"$work/unfused"
        d=$(distance "$work/fused" "$work/unfused")
        awk -v d="$d" 'BEGIN { exit !(d == d + 0 && d < 2e-5) }'
        verdict "$net without $rule: distance $d" $? "$work/log"
    done
    loss $net "passes={fuse: {$all}}" >"$work/unfused"
    d=$(distance "$work/fused" "$work/unfused")
    awk -v d="$d" 'BEGIN { exit !(d == d + 0 && d < 2e-5) }'
    verdict "$net without any: distance $d" $? "$work/log"
done
echo "rules met: $met"
[ "$(echo "$met" | wc -w)" -ge 6 ] || [ -n "${NETS:-}" ]
verdict "most rules are met by some network" $?
