#!/bin/sh
# Twenty updates in one go and ten, then ten more from the checkpoint, end with the same bytes of every
# tensor and the same rows of metrics: every optimizer, with dropout, augmentation, running averages, a
# schedule, clipping and batch norm; with any number of loader threads. DEVICE=cuda: on the GPU, where
# updates run as series, as one recorded program each, or node by node.
. "$(dirname "$0")/common.inc"

cat >"$work/net.yaml" <<END
dltrain: 1
seed: 7
data:
  train: {cifar10: "$root/datasets/samples/cifar10_small_train.bin"}
  val: 10% of train
  test: {cifar10: "$root/datasets/samples/cifar10_small_test.bin"}
  augment: [{pad_crop: 4}, {flip: horizontal}, {cutout: 8}]
  normalize: from train
model:
  - {conv: {filters: 4, kernel: 3, stride: 2, pad: same, bias: false}}
  - batch_norm
  - relu
  - max_pool: 2
  - flatten
  - dropout: 0.3
  - dense: \${data.classes}
loss: {cross_entropy: {label_smoothing: 0.1}}
train:
  for: 20 steps
  batch: {global: 48, micro: 24}
  optimizer: {adamw: {lr: 1e-2}, groups: [{match: "*.bias", weight_decay: 0, lr: x0.5}]}
  schedule: [{warmup: 5 steps}, {cosine: {to: 1e-4}}]
  clip: {norm: 1.0}
  ema: 0.9
eval: {every: 6 steps, metrics: [loss, top1, f1], weights: ema}
checkpoint: {every: 7 steps, keep: {last: 2, best: 1 by val.loss min}}
log: {every: 1 steps}
END
# The rows without what a clock measured and without the size of the data set.
rows() {
    sed 's/"\(time_s\|samples_per_s\|data_wait\|memory_bytes\)": [^,}]*/"\1": -/g' "$1/metrics.jsonl"
}
same_run() { # NAME RUN RUN
    for file in last best; do
        tensors "$2/$file.bin" >"$work/one" && tensors "$3/$file.bin" >"$work/two" &&
            [ -s "$work/one" ] && cmp "$work/one" "$work/two" >"$work/said" 2>&1
        verdict "$1: $file.bin" $? "$work/said"
    done
    rows "$2" >"$work/one" && rows "$3" >"$work/two" && [ "$(wc -l <"$work/one")" -eq 20 ] &&
        diff "$work/one" "$work/two" >"$work/said" 2>&1
    verdict "$1: metrics" $? "$work/said"
}
halves() { # NAME OVERRIDE...
    name=$1
    shift
    rm -rf "$work/whole" "$work/cut"
    "$dltrain" train "$work/net.yaml" "$@" --device "$device" --out "$work/whole" >"$work/log" 2>&1
    verdict "$name: twenty" $? "$work/log"
    "$dltrain" train "$work/net.yaml" "$@" --device "$device" --out "$work/cut" --stop-at 10 >"$work/log" 2>&1
    [ $? -eq 75 ]
    verdict "$name: stops at ten with 75" $? "$work/log"
    # the algorithms are the checkpoint's, not the cache's or what would be measured now
    DLTRAIN_CACHE=none "$dltrain" resume "$work/cut/last.bin" --device "$device" >"$work/log" 2>&1
    verdict "$name: ten more" $? "$work/log"
    same_run "$name" "$work/whole" "$work/cut"
}
for optimizer in $(sed -n 's/^OPTIM(\(.*\))$/\1/p' core/train/optim.def); do
    case $optimizer in
    adam | adamw) options='lr: 1e-2, weight_decay: 1e-3' ;;
    sgd) options='lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 1e-3' ;;
    rmsprop) options='lr: 1e-3, momentum: 0.9, centered: true' ;;
    adagrad) options='lr: 1e-2, lr_decay: 0.01' ;;
    *) options='lr: 1e-3, weight_decay: 0.1' ;;
    esac
    halves "$optimizer" "train.optimizer={$optimizer: {$options}}"
done

halves "data from the host, read by threads" data.cache=host data.threads=3
mv "$work/whole" "$work/three"
"$dltrain" train "$work/net.yaml" data.cache=host data.threads=1 --device "$device" --out "$work/one_thread" >"$work/log" 2>&1
same_run "one loader thread as three" "$work/three" "$work/one_thread"
"$dltrain" train "$work/net.yaml" --device "$device" --out "$work/resident" >"$work/log" 2>&1
same_run "data on the device as on the host" "$work/three" "$work/resident"

halves "one micro batch" train.batch=48
mv "$work/whole" "$work/series"
"$dltrain" train "$work/net.yaml" train.batch=48 --eager --device "$device" --out "$work/eager" >"$work/log" 2>&1
same_run "as recorded, so node by node" "$work/series" "$work/eager"
halves "strict f32" train.precision=f32 train.batch=48
if [ "$device" != cpu ]; then # not on every CPU
    halves "bf16" train.precision=bf16 train.batch=48
    halves "f16, updates left out in both halves" train.precision=f16 'train.loss_scale={init: 1e30, backoff: 0.02, growth: 64, interval: 2}'
    halves "f16 in series" train.precision=f16 train.batch=48 'train.loss_scale={init: 1e30, backoff: 0.02, growth: 64, interval: 2}'
fi
