#!/bin/bash
# dltrain profile: every node of the step with time, operations, bytes, share of the peak and what it is
# bound by, as a table and as JSON. DEVICE=cuda: on the GPU.
. "$(dirname "$0")/common.inc"
"$dltrain" profile tests/gpu/mlp.yaml --device "$device" >"$work/table" 2>"$work/log"
verdict "table" $? "$work/log"
[ "$(grep -c '^matmul\..* [0-9.]* *[0-9.]*% *[0-9.]* *[0-9.]* *[0-9]*% \(compute\|memory\|latency\)$' "$work/table")" -eq 8 ]
verdict "the eight products each have a line" $? "$work/table"
grep -q '^whole step without timers: [0-9.]* ms on ' "$work/table" && grep -q '^peaks measured here: [1-9][0-9]* GFLOP/s .*, [1-9][0-9]* GB/s ' "$work/table"
verdict "the whole step and the peaks stand below" $? "$work/table"
"$dltrain" profile tests/gpu/mlp.yaml --device "$device" --json >"$work/json" 2>"$work/log"
verdict "JSON" $? "$work/log"
# 64 x 64 bytes come in and 64 x 64 floats go out; the first product: 2 x 64 x 64 x 96 operations and its bias
# and activation
tr -d '\n' <"$work/json" | grep -q '"kernel": "fetch_x[^}]*"bytes": 20480\(\.0\)*,' &&
    tr -d '\n' <"$work/json" | grep -q '"kernel": "matmul[^}]*"layer": "dense"[^}]*"flops": 7[89][0-9]*\(\.0\)*,' &&
    [ "$(grep -c '"bound": "\(compute\|memory\|latency\)"' "$work/json")" -eq "$(grep -c '"kernel"' "$work/json")" ]
verdict "operations and bytes are the network's" $? "$work/json"
answers "a number of steps" 0 "whole step without timers" "$dltrain" profile tests/gpu/mlp.yaml --device "$device" --steps 2
