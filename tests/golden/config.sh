#!/bin/bash
# What a config means and what is said about it: resolved configs are fixed points, `why` and `config
# --origin` name the place of every value, extends, !replace, model.patch and expect do as LANGUAGE
# rules 3 and 8 say, and the manual, the completion and the JSON Schema come from the tables. Cases
# C04, C05, C07, C11, C16.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/configs"
ln -s "$root/datasets" "$work/datasets"
cp configs/*.yaml "$work/configs/"
cd "$work/configs" || exit 1

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
says() { # NAME CODE WORDS COMMAND...: the exit code, and the words somewhere in its output
    local name=$1 code=$2 words=$3
    shift 3
    "$@" >"$work/out" 2>&1
    [ $? -eq "$code" ] && grep -qF -- "$words" "$work/out"
    verdict "$name" $?
}

# ---- resolved configs -----------------------------------------------------------------------
cat >all.yaml <<'END'
name: all
seed: 7
vars: {width: 6, text: "a # b: c"}
data:
  train: {synthetic: {shape: [3, 8, 8], classes: 4, samples: 200}}
  val: 10% of train
  test: {synthetic: {shape: [3, 8, 8], classes: 4, samples: 50}}
  normalize: {mean: [0.5, 0.25, 1/3], std: [0.2, 0.2, 1e-1]}
  augment: [{pad_crop: 1}, {flip: horizontal}, {cutout: 2}]
  last: drop
blocks:
  pair: {params: {f: required, k: 3}, layers: [{conv: {filters: $f, kernel: $k, pad: same}}, relu]}
model:
  - {pair: {f: $width}, name: stem, repeat: 2}
  - {residual: {body: [{conv: {filters: 8, kernel: 3, pad: same}}, batch_norm], project: {conv: {kernel: 1}}}}
  - {max_pool: 2, name: odd-name_1}
  - global_avg_pool
  - {dense: "${data.classes}", name: head}
loss: {cross_entropy: {label_smoothing: 0.1}}
train:
  for: 3 epochs
  batch: {global: 20, micro: 10}
  optimizer:
    sgd: {lr: 1e-2, momentum: 0.9, nesterov: true}
    groups: [{match: "*.bias, *batch_norm*", weight_decay: 0, lr: x0.1}]
  schedule: [{warmup: 1 epochs}, {cosine: {to: 0}}]
  clip: {norm: 1}
  ema: 0.99
  stop_early: {patience: 3, metric: val.loss}
eval: {every: 1 epochs, metrics: [top1, loss], weights: ema}
checkpoint: {every: 10 steps or 5 min, keep: {last: 2, best: 1 by val.top1 max, every: 20 steps}}
log: {every: 2 steps}
expect: {params: 1 ± 1e9%, val.loss: < 1e9}
x-note: {anything: [1, {b: c}]}
END
for config in *.yaml; do
    name=$(basename "$config" .yaml)
    "$dltrain" config "$config" >"resolved_$name" 2>"$work/out"
    code=$?
    if [ $code -eq 3 ]; then # its data set is not installed
        echo "skip fixed point of $name"
        continue
    fi
    mkdir -p again && ln -sfn "$root/datasets" datasets
    cp "resolved_$name" "$name.resolved.yaml"
    "$dltrain" config "$name.resolved.yaml" >"$work/twice" 2>>"$work/out"
    [ $code -eq 0 ] && cmp -s "resolved_$name" "$work/twice"
    verdict "the resolved $name loads again as itself, to the byte" $?
    [ "$("$dltrain" config --hash "$config" 2>&1)" = "$("$dltrain" config --hash "$name.resolved.yaml" 2>&1)" ]
    verdict "the resolved $name has the config's hash" $?
    "$dltrain" config --origin "$config" >"$name.origin.yaml" 2>&1
    "$dltrain" config "$name.origin.yaml" 2>&1 | cmp -s "resolved_$name" -
    verdict "config --origin of $name loads as the same" $?
    cmp -s <("$dltrain" plan "$config" train.precision=f32 --dump plan 2>&1) <("$dltrain" plan "$name.resolved.yaml" train.precision=f32 --dump plan 2>&1)
    verdict "the resolved $name has the config's plan" $?
done
rm -f ./*.resolved.yaml ./*.origin.yaml
"$dltrain" train iris.yaml "train.for=1 epochs" --quiet --out run >/dev/null 2>&1
"$dltrain" config run/resolved.yaml 2>&1 | cmp -s - run/resolved.yaml
verdict "resolved.yaml of a run folder loads as itself, where it lies" $?
"$dltrain" train run/resolved.yaml "train.for=1 epochs" --quiet --out deep/er/run >/dev/null 2>&1 && cmp -s run/resolved.yaml deep/er/run/resolved.yaml
verdict "and trains again from there" $?
"$dltrain" init table >starter.yaml && "$dltrain" check starter.yaml "data.train.csv=$root/datasets/samples/iris.csv" >/dev/null 2>&1
verdict "what init writes loads" $?

# ---- extends, !replace, model.patch ----------------------------------------------------------
cat >base.yaml <<'END'
seed: 3
data: {train: {synthetic: {shape: [4], classes: 3, samples: 60}}}
model: [{dense: 8, name: body}, relu, {dense: {units: "${data.classes}", bias: false}, name: head}]
loss: {cross_entropy: {label_smoothing: 0.1}}
train: {for: 2 epochs, batch: 6, optimizer: {sgd: {lr: 0.1, momentum: 0.5}}, schedule: [{warmup: 2 steps}, constant]}
END
value() { "$dltrain" config "$1" 2>/dev/null | grep -E "^ *(- )?$2:" | sed 's/^[^:]*: *//' | head -1; }
printf 'extends: base.yaml\ntrain: {optimizer: {sgd: {lr: 0.2}}}\n' >deep.yaml
[ "$(value deep.yaml lr)" = 0.2 ] && [ "$(value deep.yaml momentum)" = 0.5 ] && [ "$(value deep.yaml seed)" = 3 ]
verdict "extends merges maps deeply" $?
printf 'extends: base.yaml\ntrain: {optimizer: !replace {sgd: {lr: 0.2}}}\n' >replace.yaml
[ "$(value replace.yaml lr)" = 0.2 ] && [ "$(value replace.yaml momentum)" = 0 ]
verdict "!replace stops the merge" $?
printf 'extends: base.yaml\ntrain: {schedule: [constant]}\n' >list.yaml
[ "$("$dltrain" config list.yaml 2>/dev/null | grep -c warmup)" -eq 0 ]
verdict "extends replaces lists" $?
printf 'extends: base.yaml\ntrain: {optimizer: {adamw: {lr: 1e-3}}}\n' >two.yaml
says "two optimizers by merging are refused, with both places" 2 "two.yaml:2:21: error: train.optimizer: 'sgd' and 'adamw' are both a optimizer" "$dltrain" check two.yaml
printf 'extends: base.yaml\nmodel: {patch: {body: 16, head: {bias: true}}}\n' >patch.yaml
[ "$(value patch.yaml units)" = 16 ] && [ "$("$dltrain" config patch.yaml 2>/dev/null | grep -c 'bias: true')" -eq 2 ]
verdict "model.patch changes named layers" $?
[ "$("$dltrain" config base.yaml model.patch.body=16 model.patch.head.bias=true name=patch 2>/dev/null)" = "$("$dltrain" config patch.yaml 2>/dev/null)" ]
verdict "model.patch on the command line means the same" $?
printf 'extends: base.yaml\nmodel: {patch: {haed: 5}}\n' >nobody.yaml
says "a patch of nobody is refused with the nearest name" 2 "did you mean 'head'" "$dltrain" check nobody.yaml

# ---- expect ----------------------------------------------------------------------------------
says "expect: params are known before the start" 2 "expect.params" "$dltrain" check base.yaml "expect.params='9 ± 1'"
says "expect: true params" 0 ok "$dltrain" check base.yaml "expect.params='64 ± 1%'" # 4 x 8 + 8 + 8 x 3
says "expect: a broken one ends the run with 7" 7 "expect.train.loss: < 1e-9" "$dltrain" train base.yaml "expect={train.loss: '< 1e-9 by end'}" --out "$work/broken" --quiet
says "expect: one that holds" 0 "" "$dltrain" train base.yaml "expect={train.loss: '< 1e9 by end'}" --out "$work/holds" --quiet
says "expect: a metric that is not measured" 2 "expect" "$dltrain" check base.yaml "expect={val.top1: '> 1'}"

# ---- why, config --origin --------------------------------------------------------------------
says "why: the line of the file" 0 "deep.yaml:2:31" "$dltrain" why deep.yaml lr
says "why: what it replaced" 0 "instead of 0.1 at base.yaml:5:56" "$dltrain" why deep.yaml train.optimizer.sgd.lr
says "why: an extended value" 0 "base.yaml:1:7, extended" "$dltrain" why deep.yaml seed
says "why: a default" 0 "default" "$dltrain" why deep.yaml nesterov
says "why: the command line" 0 "command line: lr=0.3" "$dltrain" why deep.yaml lr lr=0.3
"$dltrain" why deep.yaml lr lr=0.3 2>/dev/null | tail -2 >"$work/out"
grep -q "instead of 0.2 at deep.yaml:2:31" "$work/out" && grep -q "instead of 0.1 at base.yaml:5:56" "$work/out"
verdict "why: all that the command line replaced" $?
says "why: a part of a value" 0 "train.batch.global = 6" "$dltrain" why base.yaml train.batch
says "why: a value that was chosen" 0 "chosen" "$dltrain" why base.yaml train.batch.micro
says "why: an unknown path" 2 "did you mean 'momentum'" "$dltrain" why base.yaml momentun
"$dltrain" config --origin deep.yaml lr=0.3 2>/dev/null >"$work/out"
! grep -vE '^ *(- )?[a-z_0-9.-]+:( .* # (default|chosen|command line: .*|[a-z]+\.yaml:[0-9]+:[0-9]+(, extended)?))?$' "$work/out" &&
    [ "$(grep -c 'command line: lr=0.3' "$work/out")" -eq 1 ]
verdict "config --origin: every value has its origin" $?

# ---- explain --json-schema, --man, --bash -----------------------------------------------------
"$dltrain" explain --json-schema >schema.json
verdict "the JSON Schema is written" $?
bad=0
for word in $("$dltrain" explain | sed -n 's/^  \([a-z_0-9]*\) .*/\1/p'); do
    grep -q "\"$word\"" schema.json || case $word in config | *_*relu | off) ;; *) echo "missing: $word" && bad=$((bad + 1)) ;; esac
done >"$work/missing"
[ "$(grep -vcE 'missing: ($|.*(fuse|fused))' "$work/missing")" -lt 60 ] && grep -q '"label_smoothing"' schema.json && grep -q '"nesterov"' schema.json
verdict "the JSON Schema knows layers, losses, optimizers and formats" $?
if /usr/bin/python3 -c 'import jsonschema, yaml' 2>/dev/null; then
    /usr/bin/python3 - ./*.yaml 3<schema.json <<'END' >"$work/out" 2>&1
import json, sys, yaml, jsonschema
yaml.SafeLoader.add_constructor("!replace", lambda l, n: l.construct_mapping(n, deep=True))
schema = json.load(open(3))
jsonschema.Draft7Validator.check_schema(schema)
v = jsonschema.Draft7Validator(schema)
bad = 0
for name in sys.argv[1:]:
    for e in v.iter_errors(yaml.safe_load(open(name))):
        print(name, list(e.absolute_path), e.message[:200]); bad = 1
good = yaml.safe_load(open('base.yaml'))
def refused(**change):
    c = json.loads(json.dumps(good)); c.update(change)
    return any(v.iter_errors(c))
for change in ({'learning_rate': 1}, {'seed': -1}, {'seed': 'x'}, {'loss': 'crossentropy'}, {'log': {'every': 5}},
               {'train': dict(good['train'], momentun=1)}, {'train': dict(good['train'], optimizer={'sgd': {'lr': 11}})},
               {'train': 5}, {'data': {'trian': {}}}, {'model': [{'dense': {'unit': 3}}]}):
    if not refused(**change): print('accepted:', change); bad = 1
sys.exit(bad)
END
    [ $? -eq 0 ] || { cat "$work/out"; false; }
    verdict "the JSON Schema accepts every config here and refuses ten wrong ones" $?
else
    echo "skip the JSON Schema against jsonschema (python3-jsonschema is not installed)"
fi
"$dltrain" explain --man >dltrain.1
verdict "the manual page is written" $?
missing=$("$dltrain" --help | sed -n 's/^  dltrain \([a-z]*\) .*/\1/p' | while read -r c; do grep -q "^.TP" dltrain.1 && grep -q "^\\\\fB$c\\\\fR" dltrain.1 || echo "$c"; done)
[ -z "$missing" ] && [ "$(grep -c '^\\fB75\\fR' dltrain.1)" -eq 1 ] && grep -q '^\\fBlabel_smoothing\\fR a number, \[0, 1\], default 0' dltrain.1
verdict "the manual page has every command, key and exit code" $?
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww dltrain.1 >/dev/null 2>"$work/out" && [ ! -s "$work/out" ]
    verdict "groff has no complaint about the manual page" $?
else
    echo "skip groff (not installed)"
fi
"$dltrain" explain --bash >completion
complete_words() { # WORD...: what Tab offers at the last one
    bash -c 'source completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dltrain; printf "%s\n" "${COMPREPLY[@]}"' _ "$@"
}
[ "$(complete_words dltrain ins)" = inspect ] && [ "$(complete_words dltrain train iris.yaml --dev)" = --device ] &&
    complete_words dltrain train iris.yaml train.b | grep -qx 'train.batch=' && [ "$(complete_words dltrain train ir | head -1)" = iris.yaml ] &&
    complete_words dltrain explain adam | grep -qx adamw && ! complete_words dltrain check base.yaml --d | grep -q dump
verdict "completion: commands, options of the command, keys, files, names" $?

# ---- cases -----------------------------------------------------------------------------------
{ echo 'data: {train: {synthetic: {shape: [4], classes: 3, samples: 60}}}' && echo 'model: [{dense: 3}]' && echo 'loss: cross_entropy' && echo 'train:' && echo '  for: 1 epochs' && echo '  batch: 6' && seq 300 | sed 's/.*/  # &/' && echo '  optimizer: {sgd: {lr: 0.1}}'; } >dup.yaml
{ cat dup.yaml && echo '  batch: 8'; } >far.yaml
says "C04: a key twice, 300 lines apart: both lines" 2 "far.yaml:308:3: error" "$dltrain" check far.yaml
grep -q "line 6\|:6:" "$work/out"
verdict "C04: the first line is named as well" $?
{ cat dup.yaml && echo '  "batch": 8'; } >quoted.yaml
says "C04: quoted and plain are the same key" 2 "quoted.yaml:308:3: error" "$dltrain" check quoted.yaml
sed 's/{sgd: {lr: 0.1}}/{sgd: {lr: 0.1, momentum: 0.5, lr: 0.9}}/' dup.yaml >flow.yaml
says "C04: in flow style" 2 "flow.yaml:307:45: error" "$dltrain" check flow.yaml
printf 'a: &m {batch: 8}\n' | sed 's/^a:/x-base:/' | cat - dup.yaml >merge.yaml && echo '  <<: *m' >>merge.yaml
says "C04: through a merge key" 2 "error" "$dltrain" check merge.yaml
sed 's/^  batch: 6/\tbatch: 6/' dup.yaml >tab.yaml
says "C05: a tab in the indentation: the word and the line" 2 "tab.yaml:6:" "$dltrain" check tab.yaml
grep -qi tab "$work/out"
verdict "C05: the message says tab" $?
sed 's/^  batch: 6/  batch: 6\t# six/' dup.yaml >tab2.yaml
says "C05: a tab between value and comment loads" 0 ok "$dltrain" check tab2.yaml
sed 's/^  batch: 6/  batch: 6\t/' dup.yaml >tab3.yaml
says "C05: a tab at the end of a line loads" 0 ok "$dltrain" check tab3.yaml
says "C07: a misspelt key" 2 "did you mean train.optimizer.sgd.momentum" "$dltrain" check dup.yaml train.momentun=0.9
says "C07: a key under the wrong block" 2 "train.optimizer.sgd.lr" "$dltrain" check base.yaml "model=[{dense: {units: 3, lr: 0.1}}]"
says "C11: another number of classes in the model: both numbers" 2 "has 12 scores, but data.train has 3 classes" "$dltrain" check dup.yaml model.0=12 "model=[{dense: 12}]"
says "C11: class weights for another number of classes" 2 "class_weights" "$dltrain" check dup.yaml "loss={cross_entropy: {class_weights: [1, 2]}}"
cp base.yaml place.yaml
says "C16: a folder that is not there is made" 0 "" "$dltrain" train place.yaml --out "$work/a/b/c" --quiet
[ -f "$work/a/b/c/last.bin" ]
verdict "C16: and holds the run" $?
touch "$work/file"
says "C16: a file in the place of the folder" 6 "$work/file" "$dltrain" train place.yaml --out "$work/file" --quiet
ln -s "$work/nowhere" "$work/dangling"
"$dltrain" train place.yaml --out "$work/dangling" --quiet >"$work/out" 2>&1
code=$?
[ $code -eq 6 ] || { [ $code -eq 0 ] && [ -f "$work/nowhere/last.bin" ]; }
verdict "C16: a dangling link: refused, or made" $?
says "C16: a name of 300 bytes" 6 "too long" "$dltrain" train place.yaml --out "$work/$(printf 'x%.0s' $(seq 300))" --quiet
says "C16: a folder that nobody can write to" 6 "/proc" "$dltrain" train place.yaml --out /proc/run --quiet
