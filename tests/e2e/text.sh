#!/bin/bash
# Text as a user meets it: tokenize, train, eval and generate. Generation with the cache gives the ids of
# generation without; it works from the checkpoint alone; bad inputs end with their exit code and say
# where they are before a step is run.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
text=$root/datasets/samples/shakespeare.txt

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
run() { # ARGUMENT ...: exit code in $code, output in $work/stdout and stderr
    (cd "$work" && "$dltrain" "$@") >"$work/stdout" 2>"$work/stderr"
    code=$?
}
refused() { # NAME CODE MESSAGE
    [ "$code" -eq "$2" ] && grep -qF -- "$3" "$work/stderr"
    local status=$?
    [ $status -eq 0 ] || sed 's/^/# /' "$work/stderr"
    verdict "$1" $status
}

config() { # NAME DATA POSITION ATTENTION: a small causal model, 24 tokens of context
    cat >"$work/$1.yaml" <<YAML
dltrain: 1
data: {window: 24, $2}
model:
  - {embedding: {dim: 32, std: 0.02}, name: wte}
$3
  - residual: [layer_norm, {attention: $4}]
  - residual: [rms_norm, {dense: 64}, gelu, {dense: 32}]
  - layer_norm
  - {dense: {units: "\${data.vocab}", bias: false, tie: wte.weight}}
loss: cross_entropy
train: {for: 30 steps, batch: 96 tokens, optimizer: {adamw: {lr: 1e-2}}}
YAML
}
chars="tokenizer: chars, train: {text: text.txt, limit: 20000 tokens}, val: 10% of train"
ids="tokenizer: {bpe: bpe.json}, train: {tokens: 'shards/t_*.bin', shift: epoch}, val: {tokens: 'shards/t_000000.bin', limit: 2000 tokens}"

# shards do not depend on the number of threads, and train as any data
cp "$text" "$work/text.txt"
mkdir "$work/shards"
run tokenize text.txt --train-bpe 400 --out bpe.json
verdict "a BPE is learnt from text" $code
run tokenize text.txt --tokenizer '{bpe: bpe.json}' --out shards/t --shard 12000
verdict "text becomes shards" $code
run tokenize text.txt --tokenizer '{bpe: bpe.json}' --out one --threads 1 && run tokenize text.txt --tokenizer '{bpe: bpe.json}' --out three --threads 3
cmp -s "$work/one_000000.bin" "$work/three_000000.bin"
verdict "1 thread and 3 threads write the same ids" $?

config learned "$chars" "  - {position: {kind: learned, max: 30}}" "{heads: 4, causal: true}"
config waves "$chars" "  - {position: sinusoidal}" "{heads: 4, kv_heads: 2, causal: true, window: 5}"
config rope "$ids" "" "{heads: 2, kv_heads: 1, causal: true, rope: true, qk_norm: true}"
sed 's/{dim: 32, std/{dim: 32, vocab: 96, std/; s/units: [^,]*/units: 96/' "$work/learned.yaml" >"$work/rounded.yaml" # a vocabulary rounded up
for name in learned waves rope rounded; do
    run train $name.yaml --out "$work/runs/$name"
    verdict "$name trains" $code
    # 60 ids run past the window of 24 twice
    for how in "--temperature 0" "--seed 1" "--seed 2 --temperature 0.7 --top-k 9 --top-p 0.9"; do
        # shellcheck disable=SC2086
        run generate runs/$name --prompt "The King" --max-tokens 60 --json $how
        mv "$work/stdout" "$work/cached"
        # shellcheck disable=SC2086
        run generate runs/$name --prompt "The King" --max-tokens 60 --json $how --no-cache
        [ $code -eq 0 ] && cmp -s "$work/stdout" "$work/cached" && [ "$(grep -c . "$work/cached")" -gt 20 ]
        verdict "$name: with the cache as without, $how" $?
    done
    # prompts that fill the cache in one pass: shorter than the window by some, by none, longer by one and by far
    for length in 9 17 23 24 25 47 90; do
        prompt=$(head -c $length "$text" | tr '\n' ' ')
        run generate runs/$name --prompt "$prompt" --max-tokens 14 --json --seed $length
        mv "$work/stdout" "$work/cached"
        run generate runs/$name --prompt "$prompt" --max-tokens 14 --json --seed $length --no-cache
        [ $code -eq 0 ] && cmp -s "$work/stdout" "$work/cached" && [ "$(grep -c . "$work/cached")" -gt 16 ]
        verdict "$name: a prompt of $length characters, with the cache as without" $?
    done
done

# windows that move with the epoch: a run that is cut in the middle of one ends with the same weights
config moved "tokenizer: chars, train: {text: text.txt, limit: 3000 tokens, shift: epoch}, val: 10% of train" "" "{heads: 2, causal: true}"
weights() { "$dltrain" inspect "$work/runs/$1" | grep crc32; }
run train moved.yaml "train.for=60 steps" --out "$work/runs/whole"
run train moved.yaml "train.for=60 steps" --out "$work/runs/parts" --stop-at 37
run resume runs/parts
[ $code -eq 0 ] && [ -n "$(weights whole)" ] && [ "$(weights whole)" = "$(weights parts)" ]
verdict "a run cut in mid-epoch ends with the weights of the unbroken one" $?

# shards of characters, with the file of their tokenizer
run tokenize text.txt --tokenizer chars --out letters
config letters "tokenizer: {chars: letters_tokenizer.json}, train: {tokens: 'letters_*.bin', limit: 5000 tokens}" "" "{heads: 2, causal: true}"
run train letters.yaml "train.for=5 steps" --out "$work/runs/letters"
verdict "shards of characters train" $code

# the checkpoint is enough
run eval runs/learned --check
verdict "eval from the checkpoint gives the stored metrics" $code
# one byte a character: a byte's bits are a token's; of the BPE the shards tell how many bytes a token has
run eval runs/learned "eval.metrics=[perplexity, bits_per_byte]"
awk '{v[$1] = $2} END {d = log(v["val.perplexity"]) / log(2) - v["val.bits_per_byte"]; exit !(d < 1e-4 && d > -1e-4)}' "$work/stdout"
verdict "bits of a byte are those of a character" $?
run eval runs/rope "eval.metrics=[perplexity, bits_per_byte]"
awk '{v[$1] = $2} END {r = log(v["val.perplexity"]) / log(2) / v["val.bits_per_byte"]; exit !(r > 1.7 && r < 2.3)}' "$work/stdout"
verdict "bits of a byte are fewer than those of a token of about two bytes" $?
mv "$work/text.txt" "$work/hidden.txt"
mv "$work/bpe.json" "$work/hidden.json"
run generate runs/learned --prompt "The" --max-tokens 5
verdict "generate needs no data file" $code
run generate runs/rope --max-tokens 5
verdict "generate needs no tokenizer file; the end of a document begins a text" $code
run eval runs/rope
verdict "eval needs no tokenizer file" $code
mv "$work/hidden.txt" "$work/text.txt"
mv "$work/hidden.json" "$work/bpe.json"
run predict runs/learned text.txt
refused "predict sends models of text to generate" 2 "a model of text predicts the next token; \`dltrain generate\` shows them"
run generate runs/learned --prompt "é"
refused "a character that the text lacks" 3 "--prompt: error: byte 0: the character 'é' (U+00E9) is not among the"
run generate runs/learned --temperature 101
refused "a temperature out of range" 2 "--temperature: '101' is no number in [0, 100]"

# samples during training: the text that `generate` writes from the same weights, and no change of the run
run train learned.yaml eval="{every: 15 steps, sample: {tokens: 40, prompt: The, temperature: 0}}" --out "$work/runs/sampled"
grep '^| ' "$work/runs/sampled/log.txt" >"$work/samples"
[ $code -eq 0 ] && [ "$(grep -c '^sample at step \(15\|30\):' "$work/runs/sampled/log.txt")" -eq 2 ] && [ -s "$work/samples" ]
verdict "a sample behind each evaluation" $?
run generate runs/sampled --prompt The --max-tokens 40 --temperature 0
sed 's/^/| /' "$work/stdout" >"$work/last"
tail -n "$(wc -l <"$work/last")" "$work/samples" | cmp -s - "$work/last"
verdict "the last sample is what generate writes" $?
run train learned.yaml "eval.every=15 steps" --out "$work/runs/unsampled"
weights sampled >"$work/a"
weights unsampled >"$work/b"
[ -s "$work/a" ] && cmp -s "$work/a" "$work/b"
verdict "samples change nothing in a run" $?
run train learned.yaml "eval.sample={tokens: 4, prompt: é}" --out "$work/runs/bad"
refused "a prompt that the vocabulary lacks" 3 "eval.sample.prompt: error: byte 0: the character 'é'"

# a model that sees what comes
config both "$chars" "" "{heads: 4}"
run train both.yaml --out "$work/runs/both"
run generate runs/both --prompt "The"
refused "attention to both sides cannot generate" 2 "sees tokens behind its own (causal: false), so it cannot generate text"
run generate runs/both --prompt "The" --no-cache
refused "nor without the cache" 2 "sees tokens behind its own (causal: false), so it cannot generate text"

# bad inputs
run train rope.yaml "data.train={tokens: 'shards/t_*.bin', vocab: 399}" --out "$work/runs/bad"
refused "a vocabulary that differs from the tokenizer's" 2 "data.train.tokens.vocab: 399, but the tokenizer has 400 ids"
config raw "train: {tokens: ids.bin, vocab: 300}" "" "{heads: 2, causal: true}"
printf 'a\001%.0s' {1..100} >"$work/ids.bin"
run check raw.yaml
verdict "the header of raw ids is enough for check" $code
run check raw.yaml eval.sample=5
refused "samples without a tokenizer" 2 "eval.sample: the model cannot write: the data have no tokenizer"
run train raw.yaml "eval.metrics=[bits_per_byte]" train.batch=2 data.train.vocab=400 --out "$work/runs/bad"
refused "bits of a byte without a tokenizer" 2 "eval.metrics: bits_per_byte needs text and a tokenizer"
run train raw.yaml --out "$work/runs/bad"
refused "an id beyond the vocabulary" 3 "ids.bin: error: byte 0: token 0 is id 353, but the vocabulary has 300 ids"
[ ! -e "$work/runs/bad" ]
verdict "no run folder is left" $?
printf 'x' >>"$work/ids.bin"
run check raw.yaml
refused "an odd number of bytes" 3 "ids.bin: error: 201 bytes are no whole number of 16-bit ids: 1 are left over at byte 200"
printf 'a\001%.0s' {1..24} >"$work/ids.bin"
run check raw.yaml
refused "a shard shorter than a window" 3 "ids.bin: error: has 24 tokens, fewer than the 25 of one window and the token behind it"
run check learned.yaml "loss={cross_entropy: {ignore: 0}}"
refused "a loss that does not skip what is behind the end" 2 "ignore: 0, but the places behind the end of a text have the target -1"
sed 's/units: 96, bias: false, tie: wte.weight/units: 40/' "$work/rounded.yaml" >"$work/small.yaml"
run check small.yaml
refused "fewer scores than ids" 2 "has 40 scores, but data.train has"
run check learned.yaml data.window=40 train.batch=4
refused "a context longer than the position table" 2 "position.max: 30 positions are fewer than the 40 tokens"
printf 'abc\377' >>"$work/text.txt"
run check learned.yaml
refused "text that is no UTF-8" 3 "text.txt: error: byte 99846 (0xff) is not UTF-8"
run tokenize text.txt --tokenizer chars
refused "tokenize: text that is no UTF-8" 3 "text.txt: error: byte 99846 (0xff) is not UTF-8"
printf '{"text": "a"}\n{"text": 1}\n' >"$work/lines.jsonl"
run tokenize lines.jsonl --tokenizer bytes --jsonl text --out lines
refused "tokenize: a line without text" 3 "lines.jsonl: error: byte 14: the line has no string under the key text"
[ ! -e "$work/lines_000000.bin" ]
verdict "and no shard is left" $?
run tokenize "$text"
refused "tokenize without a tokenizer" 2 "tokenize: which tokenizer?"

# what does not fit together is told before a step, with file and offset or line
run train raw.yaml "data.train={tokens: ids.bin, vocab: 300, layout: llmc}" --out "$work/runs/bad"
refused "a wrong magic" 3 "ids.bin: error: byte 0: magic 23134561 is not that of a token shard"
run train raw.yaml "data.train={tokens: ids.bin, vocab: 70000}" data.window=4 train.batch=2 --out "$work/runs/bad"
refused "a vocabulary beyond 16-bit ids" 3 "ids.bin: error: its ids have 16 bits, which cannot hold a vocabulary of 70000"
cp "$text" "$work/text.txt"
sed 's/{heads: 4, causal/{heads: 7, causal/' "$work/learned.yaml" >"$work/heads.yaml"
run check heads.yaml
refused "heads that do not divide the width" 2 "heads.yaml:6:48: error: model[2].residual.body[1].attention.heads: 7 does not divide width 32 (divisors near: 4, 8)"
[ ! -e "$work/runs/bad" ]
verdict "and no run folder is left by any of them" $?
