#!/bin/sh
# T-KEY for the key that only a GPU heeds (the others: tests/e2e/keys.sh): with train.deterministic two runs end
# with the same bits (the second takes what the first found fastest, as in the user's cache) and the library's
# choices are of its deterministic kind; without it others are asked for.
DEVICE=${DEVICE:-cuda}
. "$(dirname "$0")/../e2e/common.inc"
needs_device "keys"

weights() { # RUN
    tensors "$work/$1/last.bin" | cksum
}
steps=30 nets="conv text"
[ -z "${EMULATED:-}" ] || { steps=2 nets=text; } # whose convolutions take minutes
train() { # NAME NET CACHE OVERRIDE...: with a cache of choices of its own
    train_name=$1 net=$2 cache=$work/cache.$3
    shift 3
    DLTRAIN_CACHE=$cache "$dltrain" train "tests/gpu/$net.yaml" "train.for=$steps steps" "$@" --device "$device" \
        --out "$work/$train_name" >"$work/$train_name.log" 2>&1
    verdict "$train_name" $? "$work/$train_name.log"
}
choices() { # NAME: what was asked for and what was chosen, with what it depends on
    cut -f 1,2 "$work/cache.$1"/*choices.txt | cut -d'|' -f2- | grep -a ' det='
}
for net in $nets; do
    train "$net-one" $net "$net-one" train.precision=bf16
    train "$net-two" $net "$net-one" train.precision=bf16
    [ "$(weights "$net-one")" = "$(weights "$net-two")" ]
    verdict "$net: train.deterministic: true, the default, gives the same bits twice" $?
    train "$net-free" $net "$net-free" train.precision=bf16 train.deterministic=false
    [ -z "${EMULATED:-}" ] || continue # asks no library
    ! choices "$net-one" | grep -v ' fwd ' | grep -q 'det=0' && choices "$net-one" | grep -q 'det=1'
    verdict "$net: true asks for deterministic algorithms" $? "$work/$net-one.log"
    ! choices "$net-free" | grep -q 'det=1' && choices "$net-free" | grep -q 'det=0'
    verdict "$net: train.deterministic: false asks for any" $? "$work/$net-free.log"
    choices "$net-one" | sed 's/det=1/det=/' | sort >"$work/one"
    choices "$net-free" | sed 's/det=0/det=/' | sort >"$work/two"
    echo "# $net: $(comm -13 "$work/one" "$work/two" | wc -l) of $(wc -l <"$work/two") choices are others without it; weights $([ "$(weights "$net-one")" = "$(weights "$net-free")" ] && echo equal || echo differ)"
done
work() { # VALUE: bytes that the gradients of attention work in
    DLTRAIN_CACHE=none "$dltrain" plan tests/gpu/text.yaml train.precision=bf16 train.deterministic="$1" --device "$device" --dump plan 2>/dev/null |
        sed -n 's/.* \(attention_bwd\.[a-z.0-9]*\) work=\([0-9]*\).*/\1 \2/p' | head -n 1
}
echo "# gradients of attention: $(work true) bytes, without it $(work false)"
