#!/bin/sh
# The user's cache of measured choices: made where it is wanted, kept whole by programs that run at the same
# time, and no harm when it is damaged, unreadable or unwritable.
DEVICE=${DEVICE:-cuda}
. "$(dirname "$0")/../e2e/common.inc"
needs_device "cache of choices"
DLTRAIN_CACHE=$work/choices
file=$DLTRAIN_CACHE/cuda-choices.txt

train() { # NAME OVERRIDE...
    train_name=$1
    shift
    "$dltrain" train tests/gpu/mlp.yaml 'train.for=3 steps' "$@" --device "$device" --out "$work/$train_name" >"$work/$train_name.log" 2>&1
}
train first
verdict "a run without a cache" $? "$work/first.log"
[ "$(head -n 1 "$file")" = "dltrain cuda choices 2" ] && [ "$(wc -l <"$file")" -gt 3 ]
verdict "leaves one" $? "$work/first.log"
cp "$file" "$work/whole"
train second && cmp "$file" "$work/whole" >"$work/said" 2>&1 && ! grep -q damaged "$work/second.log"
verdict "the next run reads it and adds nothing" $? "$work/second.log"

sed '3s/.$/_/' "$work/whole" >"$file"
train damaged && grep -q 'cuda-choices.txt: damaged .*(1 line left out)' "$work/damaged.log"
verdict "a damaged line is left out and said so" $? "$work/damaged.log"
[ "$(sort "$file" | cut -f 1)" = "$(sort "$work/whole" | cut -f 1)" ] && ! grep -q '_$' "$file"
verdict "and measured anew" $? "$file"
for content in '' 'no choices at all' "$(head -c 300 "$work/whole")"; do
    printf %s "$content" >"$file"
    rm -rf "$work/other"
    train other && grep -q "$(sed -n 2p "$work/whole" | cut -f 1 | sed 's/[][|*.]/./g')" "$file"
    verdict "a file of ${#content} other bytes does no harm" $? "$work/other.log"
done

rm -rf "$DLTRAIN_CACHE"
for width in 24 40 56 72; do
    train "at-once-$width" "train.batch=$width" &
done
wait
for width in 24 40 56 72; do
    train "again-$width" "train.batch=$width" 
    ! grep -q damaged "$work/again-$width.log"
    verdict "four programs at once: batch $width finds no damage" $? "$work/again-$width.log"
done
for width in 24 40 56 72; do
    grep -q "| ${width}x96x64 " "$file"
    verdict "four programs at once: batch $width is kept" $? "$file"
done

rm -rf "$DLTRAIN_CACHE"
for twin in one two three; do
    train "twin-$twin" &
done
wait
for twin in two three; do
    [ "$(tensors "$work/twin-one/last.bin" | cksum)" = "$(tensors "$work/twin-$twin/last.bin" | cksum)" ]
    verdict "three of one kind at once without a cache: run $twin ends with the bits of the first" $? "$work/twin-$twin.log"
done

rm -rf "$DLTRAIN_CACHE"
DLTRAIN_CACHE=none train none && [ ! -e "$work/choices" ] && [ ! -e none ]
verdict "DLTRAIN_CACHE=none keeps nothing" $? "$work/none.log"
rm -rf "$work/home" && mkdir "$work/home"
(unset DLTRAIN_CACHE XDG_CACHE_HOME; HOME=$work/home train home) && [ -s "$work/home/.cache/dltrain/cuda-choices.txt" ]
verdict "by default it lies in ~/.cache/dltrain" $? "$work/home.log"
DLTRAIN_CACHE=/proc/nowhere train unwritable
verdict "a folder that cannot be made does no harm" $? "$work/unwritable.log"
