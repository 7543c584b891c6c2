#!/bin/bash
# T-KEY (case C13): every key of every table has an effect. The tables are asked for their keys; for
# each there is a row with a context and two settings of it, and a run with one must differ from a run
# with the other in something that is not the config: its plan, its metrics, the checksums of its
# tensors, its files, its exit. A key without a row, and a row without an effect, is a failure.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
ln -s "$root/datasets/samples" samples
printf 'the quick brown fox jumps over the lazy dog. ' >text.txt
for _ in 1 2 3; do cat text.txt text.txt >more && mv more text.txt; done
tr a-m n-z <text.txt >text2.txt

# ---- contexts: a config in which @ stands for the settings ------------------------------------
# config DATA MODEL LOSS TRAIN MORE: tiny, of 4 steps
config() {
    printf 'data: %s\nmodel: %s\nloss: %s\ntrain: {for: 4 steps, batch: 6, %s}\nlog: {every: 1 steps}\n%s\n' "$@"
}
rows="{train: {synthetic: {shape: [6], classes: 3, samples: 24}}, val: 25% of train}"
images="{train: {synthetic: {shape: [2, 7, 7], classes: 3, samples: 24}}}"
opt="optimizer: {sgd: {lr: 0.5}}"
long() { printf '%s\n' "${1/for: 4 steps/for: 20 steps}"; }
few() { printf '%s\n' "${1/batch: 6/batch: 2}"; } # for sets of less than 6 samples
context() { # NAME
    case $1 in
    layer:*) config "$images" "[{${1#layer:}: {@}}, flatten, {dense: 3}]" cross_entropy "$opt" "" ;;
    row_layer:*) config "$rows" "[{dense: 8}, {${1#row_layer:}: {@}}, {dense: 3}]" cross_entropy "$opt" "" ;;
    tokens:*) config "{train: {text: {text: text.txt, window: 8, tokenizer: bytes}}}" "[{embedding: 8}, {${1#tokens:}: {@}}, {dense: 256}]" cross_entropy "$opt" "" ;;
    patches) config "$images" "[{patch_embed: {@}}, {token_pool: mean}, {dense: 3}]" cross_entropy "$opt" "" ;;
    class_token) config "$images" "[{patch_embed: {patch: 7, dim: 8}}, {class_token: {@}}, {token_pool: first}, {dense: 3}]" cross_entropy "$opt" "" ;;
    token_pool) config "$images" "[{patch_embed: {patch: 1, dim: 8}}, {token_pool: {@}}, {dense: 3}]" cross_entropy "$opt" "" ;;
    recompute) config "$rows" "[{dense: 6}, {residual: [{dense: 8}, gelu, {dense: 6}]}, {residual: [{dense: 8}, gelu, {dense: 6}]}, {dense: 3}]" cross_entropy "$opt, @" "" ;;
    loss:*) config "$rows" "[{dense: 3}]" "{${1#loss:}: {@}}" "$opt" "" ;;
    values:*) config "{train: {synthetic: {shape: [6], classes: 0, samples: 24}}}" "[{dense: 1}]" "{${1#values:}: {@}}" "$opt" "" ;;
    optim:*) config "$rows" "[{dense: 5}, tanh, {dense: 3}]" cross_entropy "optimizer: {${1#optim:}: {@}}" "" ;;
    piece:*) config "$rows" "[{dense: 3}]" cross_entropy "$opt, schedule: [{${1#piece:}: {@}}]" "" ;;
    piece2:*) config "$rows" "[{dense: 3}]" cross_entropy "$opt, schedule: [{${1#piece2:}: {@}}, {linear: {to: 0}}]" "" ;;
    data:*) config "{train: {${1#data:}: {@}}}" "[flatten, {dense: \"\${data.classes}\"}]" cross_entropy "$opt" "" ;;
    few:*) few "$(context "${1#few:}")" ;;
    table) config "{train: {csv: {@}}}" "[{dense: 1}]" mse "optimizer: {sgd: {lr: 1e-4}}" "" ;;
    classes) config "{train: {csv: {@}}}" "[{dense: \"\${data.classes}\"}]" cross_entropy "optimizer: {sgd: {lr: 1e-4}}" "" ;;
    values_npy) config "{train: {npy: {@}}}" "[flatten, {dense: 1}]" mse "optimizer: {sgd: {lr: 1e-4}}" "" ;;
    rows_of_ids:*) config "{train: {${1#*:}: {@}}}" "[{embedding: 4}, flatten, {dense: \"\${data.classes}\"}]" cross_entropy "$opt" "" ;;
    ids:*) config "{train: {${1#ids:}: {@}}}" "[{embedding: 4}, {dense: \"\${data.vocab}\"}]" cross_entropy "$opt" "" ;;
    embedding) config "{train: {text: {text: text.txt, window: 8, tokenizer: bytes}}}" "[{embedding: {@}}, {dense: \"\${data.vocab}\"}]" cross_entropy "$opt" "" ;;
    tied) config "{train: {text: {text: text.txt, window: 8, tokenizer: bytes}}}" "[{embedding: {dim: 4}, name: wte}, {dense: {@}}]" cross_entropy "$opt" "" ;;
    text) config "{@}" "[{embedding: 4}, {dense: \"\${data.vocab}\"}]" cross_entropy "$opt" "" ;;
    written) config "{train: {text: {text: text.txt}}, tokenizer: bytes, window: 8}" "[{embedding: 4}, {dense: \"\${data.vocab}\"}]" cross_entropy "$opt" "eval: {@}" ;;
    augment:*) config "{train: {synthetic: {shape: [2, 7, 7], classes: 3, samples: 24}}, augment: [{${1#augment:}: {@}}]}" "[flatten, {dense: 3}]" cross_entropy "$opt" "" ;;
    normalize) config "{train: {synthetic: {shape: [6], classes: 3, samples: 24}}, normalize: {@}}" "[{dense: 3}]" cross_entropy "$opt" "" ;;
    datasec) config "{@}" "[flatten, {dense: 3}]" cross_entropy "$opt" "" ;;
    datasec2) config "{@}" "[{dense: 2}]" cross_entropy "$opt" "" ;;
    train) printf 'data: %s\nmodel: [{dense: 5}, tanh, {dense: 3}]\nloss: cross_entropy\ntrain: {@}\nlog: {every: 1 steps}\n' "$rows" ;;
    section:*) config "$rows" "[{dense: 5}, {dropout: 0.1}, {dense: 3}]" cross_entropy "$opt, ema: 0.5" "${1#section:}: {@}" ;;
    train:*) config "$rows" "[{dense: 5}, {dense: 3}]" cross_entropy "$opt, ${1#train:}: {@}" "" ;;
    bad) long "$(context bad4)" ;;
    bad4) config "{train: {csv: {csv: samples/iris.csv, target: petal_width, ignore: species}}}" "[{dense: 1}]" mse "optimizer: {sgd: {lr: 10}}, guard: {@}" "" ;;
    spike) config "$rows" "[{dense: 8}, relu, {dense: 3}]" cross_entropy "optimizer: {sgd: {lr: 10}}, guard: {@}" "" | sed 's/for: 4 steps/for: 30 steps/' ;;
    groups) config "$rows" "[{dense: 5}, {dense: 3}]" cross_entropy "optimizer: {sgd: {lr: 0.5, weight_decay: 0.1}, groups: [{@}]}" "" ;;
    stop) config "$rows" "[{dense: 3}]" cross_entropy "optimizer: {sgd: {lr: 10}}, stop_early: {@}" "eval: {every: 1 steps}" | sed 's/for: 4 steps/for: 40 steps/' ;;
    eval) config "{train: {synthetic: {shape: [6], classes: 3, samples: 24}}, val: 25% of train}" "[{dense: 3}]" cross_entropy "$opt, ema: 0.9" "eval: {@}" ;;
    keep) config "$rows" "[{dense: 3}]" cross_entropy "$opt" "eval: {every: 1 steps}
checkpoint: {every: 1 steps, keep: {@}}" ;;
    model) config "$rows" "@" cross_entropy "$opt" "" ;;
    residual) config "$images" "[{residual: {@}}, flatten, {dense: 3}]" cross_entropy "$opt" "" ;;
    block) config "$rows" "[{b: {}}, {dense: 3}]" cross_entropy "$opt" "blocks: {b: {@}}" ;;
    root) printf '%s\n@\n' "$(config "$rows" "[{dense: 5}, {dense: 3}]" cross_entropy "$opt" "" | sed '/^log/d')" ;;
    *) echo "no context '$1'" >&2 ;;
    esac
}

# ---- observing ---------------------------------------------------------------------------------
declare -A seen=()
observe() { # CONFIG TEXT: sets $view and $code; runs in a folder of its own, so that paths are equal
    local key=$1
    if [ -n "${seen[$key]:-}" ]; then
        view=${seen[$key]#*:} code=${seen[$key]%%:*}
        return
    fi
    rm -rf run.yaml runs
    printf '%s\n' "$1" >run.yaml
    "$dltrain" train run.yaml --quiet --threads 1 >out 2>&1
    code=$?
    view=$(
        echo "exit $code"
        grep -v '^checkpoint' out
        if compgen -G 'runs/*/metrics.csv' >/dev/null; then
            ls runs/ runs/*/
            for csv in runs/*/metrics.csv; do # without times
                awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) keep[i] = $i !~ /time|per_s|data_wait/ }
                    { for (i = 1; i <= NF; i++) if (keep[i]) printf "%s,", $i; print "" }' "$csv"
            done
            for ckpt in runs/*/*.bin; do "$dltrain" inspect "$ckpt" 2>&1 | grep -E 'crc32|^step|^classes'; done
        fi
        cat runs/*/log.txt 2>/dev/null | grep -a '^| ' # samples
        "$dltrain" plan run.yaml --threads 1 2>&1
        "$dltrain" plan run.yaml --threads 1 --dump plan 2>&1
    )
    seen[$key]="$code:$view"
}
proven=' ' part=${DLT_PART:-0/1} n_row=0 # DLT_PART=I/N: N of this script share the rows
row() { # KEYS CONTEXT A B: the run with A ends well and differs from that with B, which ends well unless it begins with '!'
    local text view_a want=0 b=$4 key
    [[ $b == !* ]] && want=1 b=${b#!}
    n_row=$((n_row + 1))
    [ $((n_row % ${part#*/})) -eq "${part%/*}" ] || { proven+="$1 " && return; }
    text=$(context "$2")
    observe "${text/@/$3}"
    view_a=$view
    if [ "$code" -ne 0 ]; then
        echo "not ok $1: '$3' does not run: $(grep -m1 error: out)"
        return
    fi
    observe "${text/@/$b}"
    if [ $want -eq 0 ] && [ "$code" -ne 0 ]; then
        echo "not ok $1: '$b' does not run: $(grep -m1 error: out)"
    elif [ "$view" = "$view_a" ]; then
        echo "not ok $1: '$3' and '$b' do the same"
    else
        for key in $1; do
            echo "ok $key has an effect"
            proven+="$key "
        done
    fi
}

# ---- rows --------------------------------------------------------------------------------------
row config.dltrain root "dltrain: 1" "!dltrain: 2"
row config.name root "name: a" "name: b"
row config.seed root "seed: 1" "seed: 2"
row config.vars root "vars: {x: 1}" "!vars: 5"
row config.device root "device: cpu" "!device: cuda:1023"
row config.passes root "" "passes: {fuse: {bias: off}}"
row config.expect root "expect: {train.loss: '< 1e9'}" "!expect: {train.loss: '< 1e-9'}"
row "config.checkpoint checkpoint.every" root "checkpoint: {every: 10 min}" "checkpoint: {every: 1 steps, keep: {last: 5}}"
row "config.log log.every" root "log: {every: 1 steps}" "log: {every: 2 steps}"
row "config.eval eval.every" root "eval: {every: 1 steps}" "eval: {every: 2 steps}"
row "config.blocks blocks.NAME.layers" block "layers: [{dense: 4}]" "layers: [{dense: 5}]"
row blocks.NAME.params block "params: {n: 4}, layers: [{dense: \$n}]" "params: {n: 5}, layers: [{dense: \$n}]"
row "config.model model.layers" model "{layers: [{dense: 3}]}" "{layers: [{dense: 4}, {dense: 3}]}"
row model.patch model "{layers: [{dense: 4, name: a}, {dense: 3}]}" "{layers: [{dense: 4, name: a}, {dense: 3}], patch: {a: 5}}"
row "model.residual.body" residual "body: [{conv: {filters: 2, kernel: 3, pad: same}}]" "body: [{conv: {filters: 2, kernel: 1}}]"
row "model.residual.project" residual "body: [{conv: {filters: 3, kernel: 1}}], project: {conv: {kernel: 1}}" "body: [{conv: {filters: 3, kernel: 1}}], project: {conv: {kernel: 1, bias: false}}"

# layers
d="units: 4" c="filters: 4, kernel: 3"
row model.dense.units row_layer:dense "units: 4" "units: 5"
row model.dense.bias row_layer:dense "$d" "$d, bias: false"
inits() { # LAYER CONTEXT SETTINGS: the keys that every trained table shares
    row "model.$1.init" "$2" "$3, init: ones" "$3, init: zeros"
    row "model.$1.fan" "$2" "$3, init: kaiming_normal" "${4:-}$3, init: kaiming_normal, fan: out"
    row "model.$1.std" "$2" "$3, init: normal, std: 0.1" "$3, init: normal, std: 0.2"
    row "model.$1.gain" "$2" "$3, init: xavier_normal, gain: 1" "$3, init: xavier_normal, gain: 2"
}
inits dense row_layer:dense "units: 5"
row model.dense.bias_init row_layer:dense "$d" "$d, bias_init: ones"
row model.conv.filters layer:conv "filters: 4, kernel: 3" "filters: 5, kernel: 3"
row model.conv.kernel layer:conv "$c" "filters: 4, kernel: 1"
row model.conv.stride layer:conv "$c" "$c, stride: 2"
row model.conv.pad layer:conv "$c" "$c, pad: same"
row model.conv.dilation layer:conv "$c" "$c, dilation: 2"
row model.conv.groups layer:conv "$c" "$c, groups: 2"
row model.conv.bias layer:conv "$c" "$c, bias: false"
inits conv layer:conv "$c"
row model.conv.bias_init layer:conv "$c" "$c, bias_init: zeros"
for pool in max_pool avg_pool; do
    row model.$pool.kernel layer:$pool "kernel: 2" "kernel: 3"
    row model.$pool.stride layer:$pool "kernel: 2" "kernel: 2, stride: 1"
    row model.$pool.pad layer:$pool "kernel: 3, stride: 2" "kernel: 3, stride: 2, pad: 1"
    row model.$pool.ceil_mode layer:$pool "kernel: 2" "kernel: 2, ceil_mode: true"
done
row model.avg_pool.count_include_pad layer:avg_pool "kernel: 3, pad: 1" "kernel: 3, pad: 1, count_include_pad: false"
row model.batch_norm.eps layer:batch_norm "" "eps: 0.5"
row model.batch_norm.momentum layer:batch_norm "" "momentum: 0.5"
row model.layer_norm.eps row_layer:layer_norm "" "eps: 0.5"
row model.rms_norm.eps row_layer:rms_norm "" "eps: 0.5"
row model.group_norm.groups layer:group_norm "groups: 1" "groups: 2"
row model.group_norm.eps layer:group_norm "groups: 1" "groups: 1, eps: 0.5"
row model.dropout.p row_layer:dropout "p: 0.1" "p: 0.7"
row model.leaky_relu.negative_slope row_layer:leaky_relu "" "negative_slope: 0.5"
row model.gelu.form row_layer:gelu "form: exact" "form: tanh"
row model.softplus.beta row_layer:softplus "" "beta: 3"
row model.elu.alpha row_layer:elu "" "alpha: 0.3"
row model.reshape.shape layer:reshape "shape: [49, 2]" "shape: [14, 7]"
row model.concat.axis model "[{reshape: [2, 3], name: a}, {relu: , name: b}, {concat: [a, b]}, flatten, {dense: 3}]" "[{reshape: [2, 3], name: a}, {relu: , name: b}, {concat: {axis: 1}, from: [a, b]}, flatten, {dense: 3}]"
e="dim: 4"
row model.dense.tie tied "units: 256, bias: false" "units: 256, bias: false, tie: wte.weight"
row model.embedding.dim embedding "dim: 4" "dim: 5"
row model.embedding.vocab embedding "$e" "$e, vocab: 300"
inits embedding embedding "$e"
a="heads: 2"
inits attention tokens:attention "$a"
row model.attention.heads tokens:attention "heads: 2" "heads: 4"
row model.attention.kv_heads tokens:attention "$a" "$a, kv_heads: 1"
row model.attention.head_dim tokens:attention "$a" "$a, head_dim: 8"
row model.attention.causal tokens:attention "$a" "$a, causal: true"
row model.attention.window tokens:attention "$a" "$a, window: 2"
row model.attention.dropout tokens:attention "$a" "$a, dropout: 0.5"
row model.attention.bias tokens:attention "$a" "$a, bias: false"
row model.attention.bias_init tokens:attention "$a" "$a, bias_init: ones"
row model.attention.qk_norm tokens:attention "$a" "$a, qk_norm: true"
row model.attention.rope tokens:attention "$a" "$a, rope: true"
row model.attention.rope_base tokens:attention "$a, head_dim: 8, rope: true, std: 1" "$a, head_dim: 8, rope: true, std: 1, rope_base: 2"
row model.attention.out_init tokens:attention "$a" "$a, out_init: zeros"
for g in geglu swiglu; do
    inits $g tokens:$g "hidden: 6"
    row model.$g.hidden tokens:$g "hidden: 6" "hidden: 7"
    row model.$g.bias tokens:$g "hidden: 6" "hidden: 6, bias: true"
    row model.$g.bias_init tokens:$g "hidden: 6, bias: true" "hidden: 6, bias: true, bias_init: ones"
    row model.$g.out_init tokens:$g "hidden: 6" "hidden: 6, out_init: zeros"
done
inits position tokens:position "kind: learned, max: 20"
row model.position.kind tokens:position "kind: learned" "kind: sinusoidal"
row model.position.max tokens:position "kind: learned" "kind: learned, max: 20"
pe="patch: 7, dim: 8"
inits patch_embed patches "$pe"
row model.patch_embed.patch patches "$pe" "patch: 1, dim: 8"
row model.patch_embed.dim patches "$pe" "patch: 7, dim: 9"
row model.patch_embed.bias patches "$pe" "$pe, bias: false"
row model.patch_embed.bias_init patches "$pe" "$pe, bias_init: ones"
inits class_token class_token "x-none: 1" "!" # fan is refused: one token has one fan
row model.token_pool.kind token_pool "kind: mean" "kind: first"

# losses, optimizers, schedules
row loss.cross_entropy.label_smoothing loss:cross_entropy "" "label_smoothing: 0.2"
row loss.cross_entropy.class_weights loss:cross_entropy "" "class_weights: [1, 2, 3]"
row loss.cross_entropy.ignore loss:cross_entropy "" "ignore: 1"
row "config.loss loss.huber.delta" values:huber "" "delta: 0.01"
for o in adamw adam sgd rmsprop adagrad lion lamb muon; do
    row train.optimizer.$o.lr optim:$o "lr: 0.01" "lr: 0.02"
    row train.optimizer.$o.weight_decay optim:$o "weight_decay: 0" "weight_decay: 0.5"
done
row train.optimizer.adamw.betas optim:adamw "" "betas: [0.5, 0.6]"
row train.optimizer.adam.betas optim:adam "" "betas: [0.5, 0.6]"
row train.optimizer.lion.betas optim:lion "" "betas: [0.1, 0.2]"
row train.optimizer.lamb.betas optim:lamb "" "betas: [0.5, 0.6]"
row train.optimizer.muon.betas optim:muon "" "betas: [0.1, 0.2]"
row train.optimizer.muon.momentum optim:muon "" "momentum: 0.5"
row train.optimizer.muon.nesterov optim:muon "" "nesterov: false"
row train.optimizer.muon.ns_steps optim:muon "" "ns_steps: 2"
row train.optimizer.muon.adamw_lr optim:muon "" "adamw_lr: 0.1"
for o in adamw adam rmsprop adagrad lamb muon; do row train.optimizer.$o.eps optim:$o "" "eps: 0.5"; done
row train.optimizer.sgd.momentum optim:sgd "" "momentum: 0.9"
row train.optimizer.sgd.dampening optim:sgd "momentum: 0.9" "momentum: 0.9, dampening: 0.5"
row train.optimizer.sgd.nesterov optim:sgd "momentum: 0.9" "momentum: 0.9, nesterov: true"
row train.optimizer.rmsprop.alpha optim:rmsprop "" "alpha: 0.5"
row train.optimizer.rmsprop.momentum optim:rmsprop "" "momentum: 0.5"
row train.optimizer.rmsprop.centered optim:rmsprop "" "centered: true"
row train.optimizer.adagrad.lr_decay optim:adagrad "" "lr_decay: 0.5"
for p in warmup constant cosine linear one_cycle; do row train.schedule.$p.span piece2:$p "span: 1 steps" "span: 3 steps"; done
row train.schedule.step.span piece2:step "every: 1 steps, span: 1 steps" "every: 1 steps, span: 3 steps"
row train.schedule.exponential.span piece2:exponential "gamma: 0.5, span: 1 steps" "gamma: 0.5, span: 3 steps"
row train.schedule.inverse_sqrt.span piece2:inverse_sqrt "timescale: 2 steps, span: 1 steps" "timescale: 2 steps, span: 3 steps"
row train.schedule.inverse_sqrt.timescale piece:inverse_sqrt "timescale: 1 steps" "timescale: 3 steps"
row train.schedule.cosine.to piece:cosine "" "to: 0.1"
row train.schedule.cosine.cycles piece:cosine "" "cycles: 2"
row train.schedule.linear.to piece:linear "" "to: 0.1"
row train.schedule.step.every piece:step "every: 1 steps" "every: 2 steps"
row train.schedule.step.gamma piece:step "every: 1 steps" "every: 1 steps, gamma: 0.5"
row train.schedule.exponential.every piece:exponential "gamma: 0.5" "gamma: 0.5, every: 3 steps"
row train.schedule.exponential.gamma piece:exponential "gamma: 0.5" "gamma: 0.6"
row train.schedule.one_cycle.pct_start piece:one_cycle "" "pct_start: 0.8"
row train.schedule.one_cycle.div_factor piece:one_cycle "" "div_factor: 5"
row train.schedule.one_cycle.final_div_factor piece:one_cycle "" "final_div_factor: 2"
row train.schedule.one_cycle.anneal piece:one_cycle "" "anneal: linear"

# train
t="for: 4 steps, batch: 6, $opt"
row "config.train train.for" train "$t" "for: 5 steps, batch: 6, $opt"
row "train.batch train.batch.global" train "$t" "for: 4 steps, batch: {global: 9}, $opt"
row train.batch.micro train "$t" "for: 4 steps, batch: {global: 6, micro: 3}, $opt"
row train.recompute recompute "recompute: none" "recompute: blocks"
row train.precision train "$t" "!$t, precision: bf16" # refused, or another plan
row train.optimizer train "$t" "for: 4 steps, batch: 6, optimizer: {adam: {lr: 0.5}}"
row train.schedule train "$t" "$t, schedule: [{cosine: {to: 0}}]"
row "train.clip train.clip.norm" train "$t, clip: {norm: 100}" "$t, clip: {norm: 0.01}"
row train.ema train "$t" "$t, ema: 0.9"
row train.recompute train "$t" "$t, recompute: mlp"
row "train.stop_early train.stop_early.patience" stop "patience: 1" "patience: 30"
row train.stop_early.metric stop "patience: 2, metric: val.loss" "patience: 2, metric: val.top1"
row "train.guard train.guard.nonfinite" bad "nonfinite: skip, limit: 100" "!nonfinite: stop"
if "$(dirname "$dltrain")/tests/unit/test_watch" limit_decides >/dev/null 2>&1; then # hangs as a device would
    echo "ok train.guard.hang has an effect"
    proven+="train.guard.hang "
fi
if "$(dirname "$dltrain")/tests/unit/test_loss_scale" keys_decide >/dev/null 2>&1; then # f16 is for GPUs
    for key in loss_scale loss_scale.init loss_scale.growth loss_scale.backoff loss_scale.interval; do
        echo "ok train.$key has an effect"
        proven+="train.$key "
    done
fi
row train.guard.limit bad "nonfinite: skip, limit: 100" "!nonfinite: skip, limit: 1"
row train.guard.loss_spike spike "nonfinite: skip, limit: 100" "!nonfinite: skip, limit: 100, loss_spike: 1.01, window: 2"
row train.guard.window spike "nonfinite: skip, limit: 100, loss_spike: 1.5, window: 20" "!nonfinite: skip, limit: 100, loss_spike: 1.5, window: 2"
row train.optimizer.groups.match groups "match: '*.bias', lr: x0.1" "match: '*.weight', lr: x0.1"
row train.optimizer.groups.lr groups "match: '*', lr: x0.1" "match: '*', lr: x0.2"
row train.optimizer.groups.weight_decay groups "match: '*', weight_decay: 0.1" "match: '*', weight_decay: 0.3"
row train.optimizer.groups.freeze groups "match: '*.bias', freeze: false" "match: '*.bias', freeze: true"
row eval.metrics eval "metrics: [loss]" "metrics: [loss, top1]"
row eval.weights eval "weights: raw" "weights: ema"
row "checkpoint.keep checkpoint.keep.last" keep "last: 1" "last: 3"
row checkpoint.keep.best keep "best: none" "best: 1 by val.loss min"
row checkpoint.keep.every keep "last: 1" "last: 1, every: 2 steps"

# data
s="shape: [6]"
for pair in "shape:shape: [7]" "samples:$s, samples: 20" "classes:$s, classes: 4" "noise:$s, noise: 3" "seed:$s, seed: 5" "first:$s, first: 50" "dtype:$s, dtype: u8"; do
    row "data.train.synthetic.${pair%%:*}" data:synthetic "$s" "${pair#*:}"
done
synthetic="train: {synthetic: {shape: [2, 7, 7], classes: 3, samples: 20}}"
row "config.data data.train" datasec "$synthetic" "train: {synthetic: {shape: [3], classes: 3, samples: 20}}"
row data.val datasec "$synthetic" "$synthetic, val: 20% of train"
row data.test datasec "$synthetic" "$synthetic, test: 20% of train"
row "data.normalize data.normalize.mean" normalize "mean: 0, std: 1" "mean: 1, std: 1"
row data.normalize.std normalize "mean: 0, std: 1" "mean: 0, std: 2"
row "data.augment data.augment.pad_crop.pad" augment:pad_crop "pad: 1" "pad: 3"
row data.augment.cutout.size augment:cutout "size: 2" "size: 4"
row data.cache datasec "$synthetic, cache: device" "$synthetic, cache: host"
row data.last datasec "$synthetic, last: keep" "$synthetic, last: drop"
printf 'a,y\n1,0\nx,1\n2,1\n3,0\ny,0\n4,1\n5,0\n6,1\n' >bad.csv
skipping="train: {csv: {csv: bad.csv, target: y}}, on_bad: skip"
row data.on_bad datasec2 "$skipping" "!train: {csv: {csv: bad.csv, target: y}}"
row data.max_bad datasec2 "$skipping, max_bad: 2" "!$skipping, max_bad: 1"
iris="csv: samples/iris.csv"
row data.train.csv.csv classes "$iris, target: species" "csv: samples/wine.csv, target: cultivar"
row data.train.csv.target table "$iris, target: petal_width, ignore: species" "$iris, target: petal_length, ignore: species"
row data.train.csv.ignore classes "$iris, target: species" "$iris, target: species, ignore: petal_width"
row data.train.csv.class_names classes "$iris, target: species" "$iris, target: species, class_names: [virginica, setosa, versicolor]"
printf 'a,b,k,y\n1,2,x,0\n3,,y,1\n5,6,x,2\n7,8,y,0\n1,1,x,1\n2,3,y,2\n' >gaps.csv
printf '1;2;x;0\n3;4;y;1\n5;6;x;2\n' >semi.csv
tr ';' ',' <semi.csv >comma.csv
printf 'a;b;y\n1;2;0\n3;4;1\n5;6;2\n' >semi.csv
gaps="csv: gaps.csv, target: y, categorical: k"
row data.train.csv.missing few:classes "$gaps, missing: drop" "$gaps, missing: mean"
row data.train.csv.missing_value few:classes "$gaps, missing: constant" "$gaps, missing: constant, missing_value: 9"
row data.train.csv.categorical few:classes "csv: gaps.csv, target: y, missing: drop, ignore: a, categorical: k" "csv: gaps.csv, target: y, missing: drop, ignore: a, categorical: [k, b]"
row data.train.csv.target_type few:classes "csv: gaps.csv, target: y, missing: drop, ignore: k, target_type: classes" "!csv: gaps.csv, target: y, missing: drop, ignore: k, target_type: values"
row data.train.csv.separator few:classes "csv: semi.csv, target: y, separator: ';'" "!csv: semi.csv, target: y"
row data.train.csv.header few:classes "csv: comma.csv, target: c4, ignore: c3, header: false" "!csv: comma.csv, target: c4, ignore: c3"
g="$root/tests/golden/npy"
row data.train.cifar10.cifar10 data:cifar10 "cifar10: samples/cifar10_small_train.bin" "cifar10: samples/cifar10_small_test.bin"
head -c $((3074 * 5)) /dev/zero | tr '\0' '\1' >c100.bin
{ head -c $((3074 * 4)) /dev/zero; printf '\3\7'; head -c 3072 /dev/zero; } >c100b.bin
row data.train.cifar100.cifar100 few:data:cifar100 "cifar100: c100.bin" "cifar100: c100b.bin"
row data.train.cifar100.labels few:data:cifar100 "cifar100: c100b.bin" "cifar100: c100b.bin, labels: coarse"
idx() { printf '\0\0\10\3\0\0\0\4\0\0\0\2\0\0\0\2'; printf "$1"; } # four images of 2 x 2
idx '\1\2\3\4\5\6\7\10\1\2\3\4\5\6\7\10' >x1.idx
idx '\10\2\3\4\5\6\7\10\1\2\3\4\5\6\7\1' >x2.idx
printf '\0\0\10\1\0\0\0\4\0\1\2\0' >y1.idx
printf '\0\0\10\1\0\0\0\4\2\1\0\2' >y2.idx
row data.train.idx.idx few:data:idx "idx: x1.idx, labels: y1.idx" "idx: x2.idx, labels: y1.idx"
row data.train.idx.labels few:data:idx "idx: x1.idx, labels: y1.idx" "idx: x1.idx, labels: y2.idx"
row data.train.idx.classes few:data:idx "idx: x1.idx, labels: y1.idx" "idx: x1.idx, labels: y1.idx, classes: 5"

for f in u1_C lef4_C lei8_C labels values; do cp "$root/tests/golden/npy/$f.npy" $f.npy; done
cp "$root/tests/golden/npy/four.npz" four.npz
npy="npy: lef4_C.npy, labels: labels.npy"
row data.train.npy.npy few:data:npy "$npy" "npy: u1_C.npy, labels: labels.npy"
row data.train.npy.labels few:values_npy "npy: lef4_C.npy, labels: values.npy" "!$npy"
row data.train.npy.classes few:data:npy "$npy" "$npy, classes: 5"
row data.train.npy.layout few:data:npy "npy: u1_C.npy, labels: labels.npy, layout: hw" "npy: u1_C.npy, labels: labels.npy, layout: none"
row data.train.npy.vocab few:rows_of_ids:npy "npy: lei8_C.npy, labels: labels.npy, vocab: 24" "npy: lei8_C.npy, labels: labels.npy, vocab: 30"
npz="npz: four.npz"
row data.train.npz.npz few:data:npz "$npz" "!npz: a.bin"
row data.train.npz.x few:data:npz "$npz" "$npz, x: x2"
row data.train.npz.y few:data:npz "$npz" "$npz, y: y2"
row data.train.npz.classes few:data:npz "$npz" "$npz, classes: 5"
row data.train.npz.layout few:data:npz "$npz, x: bytes, layout: hw" "$npz, x: bytes, layout: none"
row data.train.npz.vocab few:rows_of_ids:npz "$npz, x: ids, vocab: 24" "$npz, x: ids, vocab: 30"

# text: ids and windows
row data.train.text.text ids:text "text: text.txt, window: 8, tokenizer: bytes" "text: text2.txt, window: 8, tokenizer: bytes"
row data.train.text.window ids:text "text: text.txt, window: 8, tokenizer: bytes" "text: text.txt, window: 9, tokenizer: bytes"
row data.train.text.tokenizer ids:text "text: text.txt, window: 8, tokenizer: bytes" "text: text.txt, window: 8, tokenizer: chars"
row data.train.text.limit ids:text "text: text.txt, window: 8, tokenizer: bytes" "text: text.txt, window: 8, tokenizer: bytes, limit: 80 tokens"
row data.train.text.shift ids:text "text: text.txt, window: 50, tokenizer: bytes" "text: text.txt, window: 50, tokenizer: bytes, shift: epoch"
row data.window text "train: {text: {text: text.txt}}, tokenizer: bytes, window: 8" "train: {text: {text: text.txt}}, tokenizer: bytes, window: 9"
row data.tokenizer text "train: {text: {text: text.txt}}, tokenizer: bytes, window: 8" "train: {text: {text: text.txt}}, tokenizer: chars, window: 8"

gpt2=$root/tests/golden/gpt2
cp "$gpt2/encoder.json" "$gpt2/vocab.bpe" .
sed 's/: 64,/: _,/; s/: 65,/: 64,/; s/: _,/: 65,/' encoder.json >swapped.json
head -n 3 vocab.bpe >few.bpe
m="train: {text: {text: text.txt}}, tokenizer: bytes, window: 8"
row "eval.sample eval.sample.tokens" written "sample: {tokens: 5}" "sample: {tokens: 6}"
row eval.sample.prompt written "sample: {tokens: 5, prompt: a}" "sample: {tokens: 5, prompt: b}"
row eval.sample.temperature written "sample: {tokens: 9, temperature: 0}" "sample: {tokens: 9, temperature: 5}"
row "data.mask data.mask.share" text "$m, mask: 0.15" "$m, mask: {share: 0.3}"
row data.mask.token text "$m, mask: {share: 0.5}" "$m, mask: {share: 0.5, token: 0.2}"
row data.mask.random text "$m, mask: {share: 0.5}" "$m, mask: {share: 0.5, random: 0.2}"
row data.mask.id text "$m, mask: {share: 0.5, id: 1}" "$m, mask: {share: 0.5, id: 2}"
two="text: 'text*.txt', window: 8, tokenizer: {gpt2: {vocab: encoder.json, merges: vocab.bpe}}"
row data.train.text.documents ids:text "$two" "$two, documents: split"
row data.tokenizer.gpt2.merges ids:text "$two" "${two/vocab.bpe/few.bpe}"
row data.tokenizer.gpt2.vocab ids:text "$two" "${two/encoder.json/swapped.json}"
"$dltrain" tokenize text.txt --train-bpe 270 --out a.json --quiet >/dev/null 2>&1
"$dltrain" tokenize text.txt --train-bpe 280 --out b.json --quiet >/dev/null 2>&1
row data.tokenizer.bpe.file ids:text "text: text.txt, window: 8, tokenizer: {bpe: a.json}" "text: text.txt, window: 8, tokenizer: {bpe: b.json}"
{ cat text.txt && echo 0123456789; } >both.txt
"$dltrain" tokenize both.txt --tokenizer chars --out both --quiet >/dev/null 2>&1
row data.tokenizer.chars.file ids:text "text: text.txt, window: 8, tokenizer: chars" "text: text.txt, window: 8, tokenizer: {chars: $(ls both*json)}"
ids16() { for _ in 1 2 3 4 5 6 7 8; do printf "$1"; done; }
ids16 '\1\0\2\0\3\0\4\0\5\0\0\0\6\0\7\0\1\0\2\0' >a.bin
ids16 '\2\0\1\0\3\0\4\0\5\0\0\0\6\0\7\0\1\0\3\0' >b.bin
tok="tokens: a.bin, window: 8"
row data.train.tokens.tokens ids:tokens "$tok" "tokens: b.bin, window: 8"
row data.train.tokens.window ids:tokens "$tok" "tokens: a.bin, window: 9"
row data.train.tokens.layout ids:tokens "$tok" "!$tok, layout: llmc"
row data.train.tokens.vocab ids:tokens "$tok" "$tok, vocab: 20"
row data.train.tokens.limit ids:tokens "$tok" "$tok, limit: 64 tokens"
row data.train.tokens.documents ids:tokens "$tok, eot: 0" "$tok, eot: 0, documents: split"
row data.train.tokens.eot ids:tokens "$tok, eot: 0, documents: split" "$tok, eot: 4, documents: split"
row data.train.tokens.shift ids:tokens "tokens: a.bin, window: 12" "tokens: a.bin, window: 12, shift: epoch"
row data.train.tokens.tokenizer ids:tokens "$tok" "$tok, tokenizer: bytes"

# threads: no number may change, so they are counted while the run lasts
count_threads() { # N
    local max=0 n pid
    config "{train: {synthetic: {shape: [64], classes: 3, samples: 2000}}, cache: host, threads: $1}" "[{dense: 64}, {dense: 3}]" cross_entropy "$opt" "" |
        sed 's/for: 4 steps/for: 400 epochs/; s/every: 1 steps/every: 10000 steps/' >threads.yaml
    "$dltrain" train threads.yaml --quiet --threads 1 >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 60); do
        n=$(find /proc/$pid/task -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
        [ "$n" -gt "$max" ] && max=$n
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    echo "$max"
}
few=$(count_threads 1) many=$(count_threads 5)
if [ "$many" -eq $((few + 4)) ]; then echo "ok data.threads has an effect"; else echo "not ok data.threads: 1 gives $few threads, 5 give $many"; fi
proven+="data.threads "

# resume: auto is about a run that lies in --out already
config "$rows" "[{dense: 3}]" cross_entropy "$opt" "resume: auto" >again.yaml
"$dltrain" train again.yaml --stop-at 2 --quiet --out again >/dev/null 2>&1
"$dltrain" train again.yaml resume=never --quiet --out again >/dev/null 2>&1
[ $? -eq 6 ] && "$dltrain" train again.yaml --quiet --out again 2>&1 | grep -q '^step *4$\|train.loss' && [ "$(tail -1 again/metrics.csv | cut -d, -f1)" = 4 ]
if [ $? -eq 0 ]; then echo "ok config.resume has an effect"; else echo "not ok config.resume"; fi
proven+="config.resume "

# ---- is every key proven? ------------------------------------------------------------------------
# These differ on a GPU alone, or have one value only.
echo "skip train.deterministic (chooses among a GPU's algorithms: tests/gpu/keys.sh)"
one_value() { # KEY WORDS: as explain has it; more values would need a row
    "$dltrain" explain "$1" | grep -qF "$2" && echo "skip $1 (has one value)" && proven+="$1 "
}
one_value flip.axis "one of horizontal, required" && proven+="data.augment.flip.axis "
proven+="train.deterministic "
keys=$("$dltrain" explain | sed -n 's/^  \([a-z][a-z_0-9.A-Z]*\) .*/\1/p' | sort -u | while read -r name; do
    "$dltrain" explain "$name" | awk '/^[a-zA-Z]/ { path = $1; sub(/:$/, "", path) } /^  / && !/^  no options/ { print path "." $1 }'
done | sort -u)
n=0
for key in $keys; do
    n=$((n + 1))
    case $proven in *" $key "*) ;; *) echo "not ok $key: no row proves that it has an effect" ;; esac
done
[ $n -gt 150 ] && echo "ok all $n keys were asked for"
