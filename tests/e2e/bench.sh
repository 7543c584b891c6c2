#!/bin/bash
# dltrain bench, with windows of two updates: the table, its JSON, the choice of workloads, and that nothing
# is left behind. What it measures is not judged here.
. "$(dirname "$0")/common.inc"
export TMPDIR=$work
"$dltrain" bench --device cpu --only mlp,start --steps 2 >"$work/table" 2>"$work/log"
verdict "the MLP's rows" $? "$work/log"
[ "$(grep -c '^MLP 784-512-256-10  *tf32  *128  *[0-9.]*[0-9]  *[0-9.]*\.\.[0-9.]*  *[0-9]' "$work/table")" -eq 1 ] &&
    grep -q '^start to the end of one update' "$work/table" && ! grep -q LeNet "$work/table"
verdict "are those asked for" $? "$work/table"
"$dltrain" bench --device cpu --only mlp --steps 2 --json >"$work/json" 2>"$work/log"
verdict "JSON" $? "$work/log"
grep -q '"backend": "cpu"' "$work/json" && grep -q '"workload": "mlp"' "$work/json" && grep -q '"windows": 7' "$work/json" &&
    grep -q '"per_s": [0-9.]*[0-9]' "$work/json"
verdict "holds the device, the workload and its rate" $? "$work/json"
[ -z "$(find "$work" -name 'dltrain-bench-*')" ]
verdict "its folder is gone" $?
answers "an unknown workload" 2 "no workload 'lenett' here; known: mlp, lenet, resnet8, resnet20, gpt, start, process" \
    "$dltrain" bench --device cpu --only mlp,lenett
answers "a word too many" 2 "one word too many" "$dltrain" bench mlp
answers "a device that is not there" 2 "known: auto, cpu, cuda, cuda:N" "$dltrain" bench --device tpu
TMPDIR=/nowhere/at/all answers "no place for its files" 6 "/nowhere/at/all/dltrain-bench-[0-9]* cannot be made" "$dltrain" bench
[ -z "$(find "$work" -name 'dltrain-bench-*')" ]
verdict "nothing is left after errors" $?
