#!/bin/sh
# A run that is told to stop finishes its update, saves and says how it ended by its exit code: 130 after
# SIGINT, 143 after SIGTERM, 75 after SIGUSR1. Its checkpoint is evaluated and resumed to the same end as
# the run that nobody stopped.
. "$(dirname "$0")/common.inc"

cat >"$work/net.yaml" <<END
dltrain: 1
seed: 3
data:
  train: {idx: "$root/datasets/samples/digits-images.idx3.gz", labels: "$root/datasets/samples/digits-labels.idx1.gz"}
  test: 20% of train
model: [flatten, dense: 32, relu, dropout: 0.2, dense: 10]
loss: cross_entropy
train: {for: 3000 steps, batch: 32, optimizer: {adamw: {lr: 1e-3}}, schedule: [{cosine: {to: 0}}]}
checkpoint: {every: 1e6 steps}
log: {every: 10 steps}
END

"$dltrain" train "$work/net.yaml" --device cpu --out "$work/whole" >"$work/log" 2>&1
verdict "the whole run" $? "$work/log"
stopped() { # SIGNAL CODE
    run=$work/$1
    "$dltrain" train "$work/net.yaml" --device cpu --out "$run" >"$work/log" 2>&1 &
    pid=$!
    i=0
    while [ ! -s "$run/metrics.jsonl" ] && [ $i -lt 500 ]; do i=$((i + 1)); sleep 0.02; done
    kill -"$1" $pid
    wait $pid
    code=$?
    [ $code -eq "$2" ] && grep -q "stopped at step [0-9]* of 3000 as asked" "$work/log"
    verdict "SIG$1 ends with $2" $? "$work/log"
    ! ls -A "$run" | grep -q tmp && grep -q "\"exit\": $2\|stopped as asked" "$run/status.json"
    verdict "SIG$1: the folder says so" $? "$run/status.json"
    answers "SIG$1: eval of the checkpoint" 0 "test.top1" "$dltrain" eval "$run/last.bin"
    answers "SIG$1: resume" 0 "test.top1" "$dltrain" resume "$run"
    tensors "$work/whole/last.bin" >"$work/one" && tensors "$run/last.bin" >"$work/two" &&
        cmp "$work/one" "$work/two" >"$work/log" 2>&1
    verdict "SIG$1: the same end as unstopped" $? "$work/log"
}
stopped INT 130
stopped TERM 143
stopped USR1 75
