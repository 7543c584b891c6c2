#!/bin/sh
# Cases of public reports (tests/cases.txt) as a user meets them on the command line: the wrong kind of file to
# resume from (C17), a network too deep for its images (C38), a run that begins from the file it would write
# (C58), weights of another network (C61), plans larger than the device (C64).
. "$(dirname "$0")/common.inc"
cd "$work" || exit 1

cat >net.yaml <<END
dltrain: 1
data: {train: {csv: "$root/datasets/samples/iris.csv", target: species}}
model: [{dense: 6}, relu, {dense: 3}]
loss: cross_entropy
train: {for: 20 steps, batch: 10, optimizer: {adam: {lr: 0.01}}}
END
train() { "$dltrain" train "$@" --device cpu --quiet >log 2>&1; }
train net.yaml --out run
verdict "a run to work with" $? log

# C17: what the file is, and what would be right
"$dltrain" export run --to safetensors >log 2>&1
verdict "C17: the weights exported" $? log
answers "C17: weights alone cannot be resumed" 4 "not one of dltrain's" "$dltrain" resume run/weights.safetensors
answers "C17: a config is no checkpoint" 4 "a text file" "$dltrain" resume net.yaml
cp "$root/datasets/samples/digits-images.idx3.gz" data.gz
answers "C17: a data file is no checkpoint" 4 "gzip" "$dltrain" resume data.gz
answers "C17: an empty folder holds none" 4 "last.bin" "$dltrain" resume "$root/datasets"
head -c 300 run/last.bin >cut.bin
answers "C17: a cut checkpoint" 4 "cut.bin" "$dltrain" resume cut.bin
sed 's/{dense: 6}/{dense: 7}/' net.yaml >other.yaml
train other.yaml --out other
cp -r other mixed && cp run/last.bin mixed/last.bin
answers "C17: another model's checkpoint is its own run" 0 "" "$dltrain" resume mixed/last.bin --device cpu --quiet
answers "C17: another model asked for" 4 "model.* was .* and is .* now" "$dltrain" resume run --device cpu "model=[{dense: 7}, relu, {dense: 3}]"
grep -q "note: that makes another run; .dltrain train --init. begins one" "$work/answer" && [ "$(grep -c '^note' "$work/answer")" -eq 1 ]
verdict "C17: and the way out" $? "$work/answer"

# C38: where the maps are too small, the layer is named
deep() { # STRIDE of the stem and the pool
    cat <<END
dltrain: 1
data: {train: {synthetic: {shape: [3, 32, 32], classes: 10, samples: 8}}}
model:
  - {conv: {filters: 8, kernel: 7, stride: $1, pad: 3}}
  - {max_pool: {kernel: 3, stride: $1, pad: 1}}
  - {conv: {filters: 8, kernel: 3, pad: 1}}
  - {conv: {filters: 8, kernel: 3, stride: 2, pad: 1}}
  - {conv: {filters: 8, kernel: 3, pad: 1}}
  - {conv: {filters: 8, kernel: 3, stride: 2, pad: 1}}
  - {conv: {filters: 8, kernel: 3, pad: 1}}
  - {conv: {filters: 8, kernel: 3, stride: 2, pad: 1}}
  - flatten
  - dense: 10
loss: cross_entropy
train: {for: 1 steps, batch: 4, optimizer: {sgd: {lr: 0.1}}}
END
}
deep 2 >deep.yaml
deep 1 >flat.yaml
answers "C38: a stem for large images: the note names the layer" 0 "convolutions work on maps of 4x4 points or less, the first being conv" \
    "$dltrain" check deep.yaml --device cpu
"$dltrain" check flat.yaml --device cpu >log 2>&1 && ! grep -q "points or less" log
verdict "C38: no note where the maps stay large" $? log
answers "C38: the table shows the size at each layer" 0 "\\[4, 8, 1, 1\\]" "$dltrain" plan deep.yaml --device cpu

# C58: a run never writes over the file it began from
before=$(cksum <run/last.bin)
answers "C58: --init from the folder's own file is refused" 6 "holds a run already" \
    "$dltrain" train net.yaml --init run/last.bin --out run --device cpu
answers "C58: in another spelling too" 6 "holds a run already" \
    "$dltrain" train net.yaml --init run/../run/last.bin --out ./run/../run --device cpu
[ "$before" = "$(cksum <run/last.bin)" ]
verdict "C58: the file is as it was" $?
mkdir named && ln run/last.bin named/hard.bin && ln -s ../run/last.bin named/soft.bin
for name in hard soft; do
    train net.yaml --init named/$name.bin --out "from-$name" && [ "$before" = "$(cksum <run/last.bin)" ]
    verdict "C58: begun through a $name link, the file stays" $? log
done

# C61: a report for each tensor; nothing comes in unsaid
answers "C61: another layer's weights are told" 0 "2 tensors matched, 2 missing, 2 unused\|matched" \
    "$dltrain" train other.yaml --init run --out init --device cpu
for file in /dev/null net.yaml data.gz cut.bin; do
    answers "C61: $(basename $file) is no set of weights" 4 "" "$dltrain" train net.yaml --init $file --out nothing --device cpu
done
{ cat run/last.bin; head -c 100000 /dev/zero; } >tail.bin
answers "C61: 100 KB behind the end" 4 "tail.bin" "$dltrain" eval tail.bin --device cpu

# C64: the plan is known before the first step; what does not fit is told with what would
cat >large.yaml <<END
dltrain: 1
data: {train: {synthetic: {shape: [4000], classes: 3, samples: 300000}}}
model: [{dense: 60000}, relu, {dense: 60000}, relu, {dense: 3}]
loss: cross_entropy
train: {for: 1 epochs, batch: 262144, optimizer: {sgd: {lr: 0.1}}}
END
start=$(date +%s%N)
answers "C64: too large a plan: needed and free bytes" 6 "the run needs [0-9]* bytes .* are free" \
    "$dltrain" train large.yaml --device cpu --out large
[ $((($(date +%s%N) - start) / 1000000)) -lt 2000 ]
verdict "C64: within two seconds" $?
[ ! -e large ]
verdict "C64: and nothing is left" $?
cat >steps.yaml <<END
dltrain: 1
data: {train: {csv: "$root/datasets/samples/iris.csv", target: species}, val: 30% of train}
model: [{dense: 6}, batch_norm, relu, {dense: 3}]
loss: cross_entropy
train: {for: 40 steps, batch: 16, optimizer: {adam: {lr: 0.01}}, ema: 0.9}
log: {every: 1 steps}
eval: {every: 7 steps}
END
train steps.yaml --out steps
[ "$(sed 's/.*"memory_bytes": \([0-9]*\).*/\1/' steps/metrics.jsonl | sort -u | wc -l)" -eq 1 ]
verdict "C64: the device's memory after the first step is the run's peak" $? steps/metrics.jsonl
