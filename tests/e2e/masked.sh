#!/bin/sh
# Models of masked text as a user meets them: what is hidden depends on the seed, the epoch and the window, and
# on nothing else, so threads and resumes do not change a run; the loss counts the hidden tokens alone; eval
# gives the stored metrics; predict fills in [MASK]; bad shares and ids are told at their line.
. "$(dirname "$0")/common.inc"
head -c 20000 datasets/samples/shakespeare.txt >"$work/text.txt"
model() { # NAME VOCABULARY: a model of 16 tokens that sees both sides
    cat >"$work/$1.yaml" <<YAML
data: {tokenizer: chars, window: 16, mask: 0.15, train: {text: text.txt}, val: 20% of train}
model:
  - {embedding: {dim: 16, $2 std: 0.5}, name: embed}
  - {position: learned}
  - residual: [layer_norm, {attention: {heads: 2}}]
  - {dense: "\${data.vocab}"}
loss: cross_entropy
train: {for: 40 steps, batch: 8, optimizer: {adamw: {lr: 3e-2}}}
YAML
}
model masked ""
cd "$work" || exit 1
run() { # NAME OVERRIDES...
    name=$1
    shift
    "$dltrain" train masked.yaml --device "$device" --quiet --out "runs/$name" "$@" >"$name.log" 2>&1
}
weights() { "$dltrain" inspect "runs/$1" | grep crc32 >"$1.crc"; }

run one --threads 1
verdict "masked: trains" $? one.log
run two --threads 2 data.cache=host data.threads=3
weights one && weights two && [ -s one.crc ] && cmp -s one.crc two.crc
verdict "masked: threads and streamed data give the same weights" $?
run cut --threads 1 --stop-at 23
"$dltrain" resume runs/cut --threads 1 --quiet >resume.log 2>&1 && weights cut && cmp -s one.crc cut.crc
verdict "masked: a run that is cut in mid-epoch ends with the weights of the unbroken one" $? resume.log
run other --threads 1 data.mask=0.5 && weights other && ! cmp -s one.crc other.crc
verdict "masked: another share gives another run" $?
answers "masked: eval gives the stored metrics" 0 "val.loss" "$dltrain" eval runs/one --check --threads 1
# a model whose scores are all 0 has the loss log(vocabulary), the mask's id counted, at any share
vocab=$(($(od -An -v -tx1 -w1 text.txt | sort -u | wc -l) + 1))
run flat --threads 1 'model=[{embedding: 4}, {dense: {units: "${data.vocab}", init: zeros, bias: false}}]' 'train.optimizer={sgd: {lr: 1e-30}}'
awk -v loss="$(figure runs/flat val.loss)" -v vocab="$vocab" 'BEGIN { d = loss - log(vocab); exit !(d < 1e-5 && d > -1e-5) }'
verdict "masked: the vocabulary has one id more, $vocab" $? flat.log

# where half the text is one letter, the model finds it again
yes 'ab' | tr -d '\n' | head -c 4000 >text.txt
run ab --threads 1 "train.for=150 steps" && at_least "$(figure runs/ab val.top1)" 0.95
verdict "masked: ab ab ab is learnt" $? ab.log
rm text.txt
printf 'abab[MASK]babab[MASK]bab' >ask.txt
"$dltrain" predict runs/ab ask.txt >answer.csv 2>predict.log
[ "$(cut -d, -f2-4 answer.csv | tr '\n' ' ')" = 'mask,byte,token 0,4,"a" 1,15,"a" ' ]
verdict "predict: fills in [MASK] from the checkpoint alone" $? answer.csv
answers "predict: as JSON lines" 0 '"mask":1,"byte":15,"token":"a"' "$dltrain" predict runs/ab ask.txt --json
printf 'abab' >ask.txt
answers "predict: a text without a mark" 3 "ask.txt.* has no \[MASK\]" "$dltrain" predict runs/ab ask.txt
answers "generate: a model that sees both sides" 2 "cannot generate text" "$dltrain" generate runs/ab --prompt a

# bad inputs, before anything runs
yes 'ab' | tr -d '\n' | head -c 4000 >text.txt
bad() { # NAME PATTERN OVERRIDES...
    bad_name=$1 bad_pattern=$2
    shift 2
    answers "masked: $bad_name" 2 "$bad_pattern" "$dltrain" check masked.yaml "$@"
}
bad "a share of 0" "data.mask.share: 0 is out of range" data.mask=0
bad "a share above 1" "data.mask.share: 15 is out of range" data.mask=15
bad "a share as percent" "data.mask" "data.mask=15%"
bad "parts above 1" "token 0.8 and random 0.3 are parts" 'data.mask={share: 0.15, random: 0.3}'
bad "an id that is none" "data.mask.id: 2 is no id of a vocabulary of 2" 'data.mask={share: 0.15, id: 2}'
bad "a loss that ignores something else" "loss.cross_entropy.ignore: 0, but with data.mask the places that are not hidden have the target -1" 'loss={cross_entropy: {ignore: 0}}'
bad "bits of a byte" "eval.metrics: bits_per_byte needs every token" 'eval={metrics: [bits_per_byte]}'
bad "a mask on images" "data.mask: has no effect" 'data={train: {synthetic: {shape: [6], classes: 3, samples: 24}}, mask: 0.1}' 'model=[{dense: 3}]'
model small "vocab: 2,"
answers "masked: no room in the embedding" 2 "small.yaml:3:.*vocab: 2 is smaller than the data's 3" "$dltrain" check small.yaml
