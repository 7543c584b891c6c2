#!/bin/sh
# Losses of 200 updates on the GPU beside those on the CPU in f32, from the same weights and samples: root
# mean square of the differences over all updates, relative to the mean loss. Bounds: strict f32 differs by
# the order of its sums alone: allowed is a roundoff an update (200 times 2^-24), or ten times what oneDNN's
# kernels and the plain ones lie apart on the CPU in the same call (Adam moves a weight whose gradient is
# nothing but rounding by the whole rate, on either side). tf32, f16 and bf16 round factors to 11, 11 and
# 8 bits of mantissa (unit roundoff 2^-11, 2^-11, 2^-8); a loss is a mean over some hundred such errors,
# which 200 updates carry on, and eight roundoffs are allowed. Also: the checkpoint of either device goes
# on, and measures the same, on the other.
DEVICE=${DEVICE:-cuda}
. "$(dirname "$0")/../e2e/common.inc"
needs_device "loss curves"
steps=${STEPS:-200}

run() { # NAME NET DEVICE OVERRIDE...
    run_name=$1 run_net=$2 run_device=$3
    shift 3
    rm -rf "$work/$run_name"
    "$dltrain" train "tests/gpu/$run_net.yaml" "$@" "train.for=$steps steps" --device "$run_device" \
        --out "$work/$run_name" >"$work/log" 2>&1 || { verdict "$run_net on $run_device $*" 1 "$work/log"; return 1; }
    column "$work/$run_name" train.loss >"$work/$run_name.loss"
    [ "$(wc -l <"$work/$run_name.loss")" -eq "$steps" ]
}
# The distance of a run from the CPU's, relative to the mean loss, is at most BOUND.
near() { # NAME RUN BOUND
    d=$(distance "$work/cpu.loss" "$work/$2.loss")
    mean=$(awk '{ sum += $1 } END { print sum / NR }' "$work/cpu.loss")
    awk -v d="$d" -v m="$mean" -v b="$3" 'BEGIN { exit !(d == d + 0 && d / m <= b) }'
    verdict "$1: distance $d of a mean loss of $mean, relative bound $3" $?
}
for net in ${NETS:-mlp conv text}; do
    run cpu $net cpu train.precision=f32 || continue
    DLTRAIN_PLUGIN=none run plain $net cpu train.precision=f32 || continue
    mean=$(awk '{ sum += $1 } END { print sum / NR }' "$work/cpu.loss")
    order=$(distance "$work/cpu.loss" "$work/plain.loss" | awk -v m="$mean" '{ x = 10 * $1 / m; least = 1.2e-5; print (x > least ? x : least) }')
    run strict $net cuda train.precision=f32 && near "$net: f32" strict "$order"
    run tf32 $net cuda train.precision=tf32 && near "$net: tf32" tf32 0.0039
    run f16 $net cuda train.precision=f16 && near "$net: f16" f16 0.0039
    run bf16 $net cuda train.precision=bf16 && near "$net: bf16" bf16 0.031

    half=$((steps / 2))
    for pair in cpu:cuda cuda:cpu; do
        from=${pair%:*} to=${pair#*:}
        rm -rf "$work/moved"
        "$dltrain" train "tests/gpu/$net.yaml" train.precision=f32 "train.for=$steps steps" --device "$from" \
            --stop-at $half --out "$work/moved" >"$work/log" 2>&1
        "$dltrain" resume "$work/moved" --device "$to" >"$work/log" 2>&1
        verdict "$net: begun on $from, goes on on $to" $? "$work/log"
        column "$work/moved" train.loss >"$work/moved.loss"
        near "$net: begun on $from, ended on $to" moved "$order"
        "$dltrain" eval "$work/moved" --device "$from" --json >"$work/one" 2>"$work/log"
        "$dltrain" eval "$work/moved" --device "$to" --json >"$work/two" 2>>"$work/log"
        sed -n 's/.*"test.loss": \([^,}]*\).*/\1/p' "$work/one" >"$work/one.loss"
        sed -n 's/.*"test.loss": \([^,}]*\).*/\1/p' "$work/two" >"$work/two.loss"
        awk -v d="$(distance "$work/one.loss" "$work/two.loss")" 'BEGIN { exit !(d == d + 0 && d < 1e-4) }'
        verdict "$net: the checkpoint ended on $to measures the same on $from" $? "$work/log"
    done
done
