#!/bin/sh
# LeNet on Fashion-MNIST, from the initial weights and with the batches that PyTorch 1.13 had when it computed
# tests/golden/lenet/curve.txt (make_curve.py): the loss of every update is within 1e-4 of PyTorch's. The
# first updates here, all 200 with DLT_FULL=1 (`make test-full`).
. "$(dirname "$0")/common.inc"
[ -d "$fashion" ] || { echo "skip lenet (no $fashion)"; exit 0; }
steps=$([ -n "${DLT_FULL:-}" ] && echo 200 || echo 40)
"$dltrain" train tests/golden/lenet/lenet.yaml "train.for=$steps steps" --device cpu --out "$work/run" >"$work/log" 2>&1
verdict "lenet: $steps updates" $? "$work/log"
# both files have a line per update: step and loss
awk -F'[ ,:{}]+' -v steps="$steps" '
    FNR == NR { want[$1] = $2; next }
    { for (i = 1; i < NF; i++) { if ($i == "\"step\"") step = $(i + 1); if ($i == "\"train.loss\"") loss = $(i + 1) }
      d = loss - want[step]; if (d < 0) d = -d; if (d > worst) { worst = d; at = step }; n++ }
    END { printf "largest distance %.2e, at update %d\n", worst, at; exit !(n == steps && worst <= 1e-4) }
' tests/golden/lenet/curve.txt "$work/run/metrics.jsonl" >"$work/log"
verdict "lenet: the loss curve of PyTorch, $(cat "$work/log")" $?
