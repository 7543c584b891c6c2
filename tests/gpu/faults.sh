#!/bin/sh
# Ends that nobody planned, on a GPU: kill -9, signals and a full disk in training, then on to the same bits;
# a run that is too large for the card; a machine that shows no card.
DEVICE=${DEVICE:-cuda}
. "$(dirname "$0")/../e2e/common.inc"
needs_device "faults"
net=tests/gpu/conv.yaml steps=2000
[ -z "${EMULATED:-}" ] || { net=tests/gpu/mlp.yaml steps=200; } # whose updates take long

train() { # NAME OVERRIDE...: in the place of the shell, so that signals reach it
    train_name=$1
    shift
    exec "$dltrain" train $net "train.for=$steps steps" "log.every=50 steps" "checkpoint.every=40 steps" train.ema=0.99 \
        "$@" --device "$device" --out "$work/$train_name" --quiet
}
tensors() { # CHECKPOINT: the bytes behind the header
    tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"
}
same_end() { # NAME RUN
    tensors "$work/whole/last.bin" >"$work/one" && tensors "$work/$2/last.bin" >"$work/two" && [ -s "$work/one" ] &&
        cmp "$work/one" "$work/two" >"$work/said" 2>&1
    verdict "$1: the same bits as the unbroken run" $? "$work/said"
}
resume() { # NAME RUN
    "$dltrain" resume "$work/$2" --device "$device" --quiet >"$work/said" 2>&1
    verdict "$1: goes on to its end" $? "$work/said"
    same_end "$1" "$2"
    ! find "$work/$2" -name '.*.tmp.*' | grep -q .
    verdict "$1: no temporary file is left" $?
}
(train whole) >"$work/said" 2>&1
verdict "the unbroken run" $? "$work/said"

# begins RUN, and waits until it has saved
begin() { # RUN
    rm -rf "${work:?}/$1"
    (train "$1") >"$work/said.$1" 2>&1 &
    pid=$!
    tries=0
    while [ ! -s "$work/$1/last.bin" ] && [ $tries -lt 6000 ] && kill -0 $pid 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.01
    done
}
for wait in 0.00 0.02 0.05 0.11; do
    begin killed
    sleep $wait
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $? -eq 137 ] && "$dltrain" inspect "$work/killed/last.bin" >"$work/said" 2>&1
    verdict "kill -9 $wait s after a save: the newest checkpoint is whole" $? "$work/said"
    "$dltrain" status "$work/killed" 2>&1 | grep -q 'killed'
    verdict "kill -9 $wait s after a save: the folder tells" $?
    resume "kill -9 $wait s after a save" killed
done
for pair in INT:130 TERM:143 USR1:75; do
    signal=${pair%:*} code=${pair#*:}
    begin stopped
    kill -"$signal" $pid
    wait $pid
    [ $? -eq "$code" ] && grep -q "\"exit\": $code" "$work/stopped/status.json"
    verdict "SIG$signal ends with $code" $? "$work/said.stopped"
    resume "SIG$signal" stopped
done

# a file system with room for three checkpoints, filled while the run goes on
mkdir "$work/small"
if $mounting mount -t tmpfs -o size=1m none "$work/small" 2>/dev/null; then
    becomes_full "a disk that becomes full" 1m "$dltrain" train $net "train.for=200000 steps" "checkpoint.every=200 steps" \
        "log.every=10000 steps" train.ema=0.99 --device "$device" --out "$work/small/run" --quiet
else
    echo "skip a disk that becomes full (no file system can be mounted here)"
fi

too_large "$work/large.yaml"
start=$(date +%s%N)
answers "a run that is too large for the card" 6 "the run needs [0-9]* bytes (.* GiB) and more on the cuda device, but [0-9]* (.* GiB) are free" \
    "$dltrain" train "$work/large.yaml" --device "$device" --out "$work/large"
echo "# refused after $((($(date +%s%N) - start) / 1000000)) ms; $(grep -o 'the run needs.*' "$work/answer")"
[ $((($(date +%s%N) - start) / 1000000)) -lt 2000 ] && [ ! -e "$work/large" ]
verdict "within two seconds, and nothing is left" $? "$work/answer"

# No card is shown.
[ -z "${EMULATED:-}" ] || exit 0 # which is always there
answers "no card, one is asked for" 5 "shows no GPU\|no CUDA-capable device" env CUDA_VISIBLE_DEVICES= "$dltrain" train tests/gpu/mlp.yaml --device cuda --out "$work/none"
answers "no card, none is asked for" 0 "cpu: CUDA_VISIBLE_DEVICES shows no GPU" env CUDA_VISIBLE_DEVICES= "$dltrain" train tests/gpu/mlp.yaml "train.for=5 steps" --device auto --out "$work/auto"
answers "no card, devices" 0 "no GPU\|no CUDA-capable device" env CUDA_VISIBLE_DEVICES= "$dltrain" devices
