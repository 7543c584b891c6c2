#!/bin/sh
# plan --what-if: one line a value, the bytes that the plan with that value has; recomputation takes less
# memory step by step.
. "$(dirname "$0")/common.inc"

config=configs/shakespeare_char.yaml
answers "what-if: runs" 0 "train.recompute=blocks" "$dltrain" plan $config --what-if train.recompute=none,mlp,blocks
"$dltrain" plan $config --what-if train.recompute=none,mlp,blocks 2>/dev/null >"$work/table"
total() { awk -v key="train.recompute=$1" '$1 == key { print $3 }' "$work/table"; }
[ "$(total none)" -gt "$(total mlp)" ] && [ "$(total mlp)" -gt "$(total blocks)" ]
verdict "what-if: recomputation takes less memory" $? "$work/table"
for value in none mlp blocks; do
    bytes=$("$dltrain" plan $config train.recompute=$value 2>/dev/null | awk '$1 == "total" && $3 == "bytes" { print $2 }')
    [ "$bytes" = "$(total $value)" ]
    verdict "what-if: $value has the bytes of its plan" $? "$work/table"
done
answers "what-if: without values" 2 "needs a key and values" "$dltrain" plan $config --what-if train.recompute
answers "what-if: an unknown value" 2 "train.recompute: .*sometimes" "$dltrain" plan $config --what-if train.recompute=sometimes
