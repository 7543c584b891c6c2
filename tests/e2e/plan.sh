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

# The time of an update: measured once, forecast for the other values, within 15% of what each takes when it
# runs. Other work on the machine only ever adds time, so the least of a few attempts is compared.
small="$config --threads 1 --device cpu vars.layers=3 vars.d=32 vars.ctx=32 vars.batch=2"
: >"$work/forecast" >"$work/measured"
for attempt in 1 2 3 4 5 6; do
    # shellcheck disable=SC2086
    "$dltrain" plan $small --what-if train.recompute=none,mlp,blocks 2>/dev/null | sed -n 's/^train.recompute=//p' >>"$work/forecast"
    for value in none mlp blocks; do
        # shellcheck disable=SC2086
        echo $value "$("$dltrain" profile $small train.recompute=$value --json 2>/dev/null | sed -n 's/.*"best_step_ms": \([0-9.]*\).*/\1/p')" >>"$work/measured"
    done
    awk 'FNR == NR { if (!($1 in want) || $5 < want[$1]) want[$1] = $5; next }
        { if (!($1 in got) || $2 < got[$1]) got[$1] = $2 }
        END { for (v in got) { r = want[v] / got[v]; printf "%s: %.3f ms forecast, %.3f ms measured\n", v, want[v], got[v]; n += r > 0.85 && r < 1.15 }
              exit n != 3 }' "$work/forecast" "$work/measured" >"$work/log"
    within=$?
    [ $within -ne 0 ] || break
done
verdict "what-if: forecasts within 15% of the measured time" $within "$work/log"
awk '$1 == "blocks" { blocks = $5 } $1 == "none" { none = $5 } END { exit !(blocks > none) }' "$work/forecast"
verdict "what-if: recomputation takes longer" $? "$work/forecast"
# eight micro batches of one sample, as much work as one of eight: counted once they would take a fourth
for attempt in 1 2 3 4; do
    # shellcheck disable=SC2086
    "$dltrain" plan $small "train.batch={global: 8, micro: 8}" --what-if train.batch.micro=8,1 2>/dev/null >"$work/table"
    awk '$1 == "train.batch.micro=8" { whole = $5 } $1 == "train.batch.micro=1" { single = $5 } END { exit !(whole > 0 && single > 0.45 * whole && single < 3 * whole) }' "$work/table"
    within=$?
    [ $within -ne 0 ] || break
done
verdict "what-if: micro batches" $within "$work/table"
