#!/bin/sh
# What is said when a GPU does not open, and where a fault on it is placed: the emulated GPU answers a call
# with CUDA's error code (DLT_FAULT). Beside `make faulty-gpu`; run by `make check-emulated`.
. "$(dirname "$0")/../e2e/common.inc"
faulty=$(dirname "$dltrain")/../fault/dltrain
[ -x "$faulty" ] && [ -e "$(dirname "$faulty")/dltrain-cuda.so" ] || { echo "skip GPU errors: make faulty-gpu"; exit 0; }
DLTRAIN_CACHE=none

opens() { # NAME FAULT PATTERN
    answers "$1" 0 "$3" env "DLT_FAULT=$2" "$faulty" devices
}
opens "no driver" device:1:35:forever 'no NVIDIA driver is installed (libcuda.so.1 was not found); this build needs one for CUDA'
opens "a driver that is too old" device:1:35:once 'driver is too old: it supports CUDA 13.0 and this build needs 13.0; install a newer driver or use'
opens "a driver without a GPU" device:1:100:once 'is there, but it shows no GPU (look at nvidia-smi, at /dev/nvidia0 and at CUDA_VISIBLE_DEVICES)'
opens "a GPU that cannot be taken" device:2:46:once 'cuda: opening the GPU: '
opens "a GPU that does not tell its properties" device:4:999:once "cuda: reading the GPU's properties: "
answers "a number that no GPU has" 5 'cuda:7: there is no such GPU; this machine shows 1: cuda:0' \
    "$faulty" train tests/gpu/mlp.yaml --device cuda:7 --out "$work/seven"

# Node by node the fault has a name; some of these calls are a kernel's launch or the wait behind it.
named=0
for k in 1000 1100 1200 1300 1400 1500; do
    DLT_FAULT=device:$k:700:once "$faulty" train tests/gpu/mlp.yaml 'train.for=60 steps' --eager --device cuda --out "$work/node$k" >"$work/said" 2>&1
    [ $? -eq 5 ]
    verdict "a fault at call $k ends with 5" $? "$work/said"
    grep -q 'in node [a-z_]* of ' "$work/said" && named=$((named + 1))
done
[ $named -ge 3 ]
verdict "with --eager most faults name their node ($named of 6)" $? "$work/said"
DLT_FAULT=device:2503:700:once "$faulty" train tests/gpu/mlp.yaml 'train.for=400 steps' --device cuda --out "$work/late" >"$work/said" 2>&1
[ $? -eq 5 ] && grep -q 'cuda: ' "$work/said"
verdict "a fault of a recorded step ends with 5 and CUDA's reason" $? "$work/said"
