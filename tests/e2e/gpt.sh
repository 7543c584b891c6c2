#!/bin/sh
# A small GPT on characters, from the initial weights and with the batches that PyTorch 1.13 had when it
# computed tests/golden/gpt/curve.txt (make_curve.py). On the CPU in f32 the loss of every update is within
# 1e-4 of PyTorch's (sums in another order; Adam at 1e-4 keeps the curves together); on a GPU the root mean
# square of the relative distances is within eight roundoffs of tf32 (2^-11), and in bf16, from the curve of
# PyTorch's autocast (curve_bf16.txt), within four times what that lies from its own f32: 6.6e-5. The first
# updates here, all 200 with DLT_FULL=1 (`make test-full`) and on a GPU.
. "$(dirname "$0")/common.inc"
[ "$device" = cpu ] || needs_device "gpt's loss curve"
steps=${STEPS:-$([ -n "${DLT_FULL:-}" ] || [ "$device" != cpu ] && echo 200 || echo 25)}

curve() { # PRECISION BOUND max|rms FILE
    rm -rf "$work/run"
    "$dltrain" train tests/golden/gpt/gpt.yaml "train.for=$steps steps" "train.precision=$1" --device "$device" \
        --out "$work/run" >"$work/log" 2>&1
    verdict "gpt: $steps updates in $1 on $device" $? "$work/log"
    # both files have a line per update: step and loss
    awk -F'[ ,:{}]+' -v steps="$steps" -v bound="$2" -v kind="$3" '
        FNR == NR { want[$1] = $2; next }
        { for (i = 1; i < NF; i++) { if ($i == "\"step\"") step = $(i + 1); if ($i == "\"train.loss\"") loss = $(i + 1) }
          d = loss - want[step]; if (d < 0) d = -d; if (d > worst) worst = d; r = d / want[step]; sum += r * r; n++ }
        END { rms = sqrt(sum / n); printf "largest distance %.2e, relative root mean square %.2e\n", worst, rms
              exit !(n == steps && (kind == "max" ? worst : rms) <= bound) }
    ' "tests/golden/gpt/$4" "$work/run/metrics.jsonl" >"$work/log"
    verdict "gpt: the loss curve of PyTorch in $1 on $device, $(cat "$work/log")" $?
}
if [ "$device" = cpu ]; then
    curve f32 1e-4 max curve.txt
else
    curve tf32 0.0039 rms curve.txt
    curve bf16 2.6e-4 rms curve_bf16.txt
fi
