#!/bin/sh
# LeNet on Fashion-MNIST, from the initial weights and with the batches that PyTorch 1.13 had when it computed
# tests/golden/lenet/curve.txt (make_curve.py): the loss of each of the 200 updates is within 1e-4 of PyTorch's, in the
# precision that a user gets (17 s of one core with the fast kernels; without them the first 40 updates), and with
# DLT_FULL=1 (`make test-full`) in `precision: f32` too, whose products are plain sums.
. "$(dirname "$0")/common.inc"
[ -d "$fashion" ] || { echo "skip lenet (no $fashion)"; exit 0; }

curve() { # PRECISION STEPS: both files have a line per update, step and loss
    "$dltrain" train tests/golden/lenet/lenet.yaml "train.precision=$1" "train.for=$2 steps" --device cpu --out "$work/$1" >"$work/log" 2>&1
    verdict "lenet: $2 updates in $1" $? "$work/log"
    awk -F'[ ,:{}]+' -v steps="$2" '
        FNR == NR { want[$1] = $2; next }
        { for (i = 1; i < NF; i++) { if ($i == "\"step\"") step = $(i + 1); if ($i == "\"train.loss\"") loss = $(i + 1) }
          d = loss - want[step]; if (d < 0) d = -d; if (d > worst) { worst = d; at = step }; n++ }
        END { printf "largest distance %.2e, at update %d\n", worst, at; exit !(n == steps && worst <= 1e-4) }
    ' tests/golden/lenet/curve.txt "$work/$1/metrics.jsonl" >"$work/log"
    verdict "lenet: the loss curve of PyTorch, $(cat "$work/log")" $?
}

curve tf32 "$([ -e "$(dirname "$dltrain")/dltrain-dnnl.so" ] && [ "${DLTRAIN_PLUGIN:-}" != none ] && echo 200 || echo 40)"
[ -z "${DLT_FULL:-}" ] || curve f32 200
