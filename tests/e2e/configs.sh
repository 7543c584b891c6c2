#!/bin/sh
# Every file of configs/ as a user runs it, shortened: check, plan, train, eval from the file alone with the
# stored metric reproduced, predict where samples are at hand. The small ones to the end, to the accuracy
# that their first line promises.
. "$(dirname "$0")/common.inc"

# CIFAR-10 in full size is not here: its small copy stands in for the files that resnet18.yaml names.
mkdir "$work/cifar10"
for i in 1 2 3 4 5; do ln -s "$root/datasets/samples/cifar10_small_train.bin" "$work/cifar10/data_batch_$i.bin"; done
ln -s "$root/datasets/samples/cifar10_small_test.bin" "$work/cifar10/test_batch.bin"

# gpt2.yaml names shards of 16-bit ids: two letters are an id of GPT-2's vocabulary.
mkdir "$work/web"
for shard in train_0 val_0; do tr -c a-z m <datasets/samples/shakespeare.txt | head -c 20000 >"$work/web/$shard.bin"; done

for config in configs/*.yaml; do
    name=$(basename "$config" .yaml)
    set -- "train.for=3 steps" checkpoint.every=2\ steps
    case $name in
    fashion_*) [ -d "$fashion" ] || { echo "skip $name (no $fashion)"; continue; } ;;
    resnet18) # bf16 is for devices that have it; a narrow one trains here, the whole one is planned below
        set -- "$@" "vars.dir=$work/cifar10" precision=f32 vars.width=4 batch=8 "expect={}" "schedule=[{cosine: {to: 0}}]" ;;
    resnet18_random) set -- precision=f32 ;;
    gpt2) # bf16 is for devices that have it
        set -- "$@" "vars.dir=$work/web" precision=f32 vars.d=24 vars.heads=2 vars.depth=1 vars.ctx=16 \
            "global=64 tokens" "schedule=[{cosine: {to: 0}}]" ;;
    llama_small) set -- "$@" vars.d=32 vars.heads=4 vars.kv_heads=2 vars.hidden=48 vars.depth=2 vars.ctx=32 vars.batch=4 ;;
    bert_small | shakespeare_char) set -- "$@" vars.d=32 vars.layers=2 vars.ctx=32 "schedule=[{cosine: {to: 0}}]" ;;
    vit) set -- "$@" vars.d=24 vars.depth=1 vars.batch=10 ;;
    resnet8) set -- "$@" "schedule=[{cosine: {to: 0}}]" ;;
    esac
    head -n 1 "$config" | grep -q '^# .*[0-9]'
    verdict "$name: its first line says what it reaches" $?
    answers "$name: check" 0 "ok, [0-9]* parameters" "$dltrain" check "$config" "$@"
    answers "$name: plan" 0 "activations peak at" "$dltrain" plan "$config" "$@"
    [ "$name" != resnet18_random ] || continue # for timing on a GPU
    answers "$name: train" 0 "checkpoint" "$dltrain" train "$config" "$@" --device cpu --out "$work/$name"
    answers "$name: eval --check" 0 '"\(test\|val\).loss": [0-9]' "$dltrain" eval "$work/$name" --check --json
    answers "$name: inspect" 0 "step         3 " "$dltrain" inspect "$work/$name"
done
answers "resnet18 as printed: parameters" 0 "total  *11173962$" \
    "$dltrain" plan configs/resnet18.yaml "vars.dir=$work/cifar10" precision=f32
answers "resnet18: expect" 2 "expect.params: .*11.17" \
    "$dltrain" check configs/resnet18.yaml "vars.dir=$work/cifar10" precision=f32 vars.width=63

reaches() { # NAME METRIC BOUND
    "$dltrain" train "configs/$1.yaml" --device cpu --out "$work/$1-whole" >"$work/log" 2>&1 &&
        reached=$(figure "$work/$1-whole" "$2") && at_least "$reached" "$3"
    verdict "$1: $2 $reached, at least $3" $? "$work/log"
}
reaches iris test.top1 0.93
reaches wine test.top1 0.93
reaches digits_mlp test.top1 0.96
answers "predict: classes by name" 0 "setosa" "$dltrain" predict "$work/iris-whole" datasets/samples/iris_test.csv
