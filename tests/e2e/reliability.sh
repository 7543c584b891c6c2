#!/bin/bash
# Ends of runs as people meet them: what became of a run, the record of a crash, going on by itself,
# time limits, signals in every phase. Cases C16, C22, C40, C62.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'case $BASHPID in $$) kill -9 $(jobs -p) 2>/dev/null; rm -rf "$work" ;; esac' EXIT # not in a child that a signal meets before it is dltrain
set -m # else the shell hides SIGINT from what runs beside it
cd "$work" || exit 1
mkdir configs && ln -s "$root/datasets" datasets
sed 's/^device:.*//' "$root/configs/iris.yaml" >configs/iris.yaml

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
quiet() { timeout 60 "$dltrain" "$@" >out.txt 2>err.txt; }
state() { "$dltrain" status "$1" --json | sed 's/.*"state":"\([a-z]*\)".*/\1/'; }
long="train.for=100000 epochs"
wait_for() { # FILE: until something is in it, at most 20 s
    for _ in $(seq 400); do
        [ -s "$1" ] && return 0
        sleep 0.05
    done
    return 1
}

# C62: every end leaves a reason; no end record means killed
quiet train configs/iris.yaml --out done "train.for=2 epochs"
[ $? -eq 0 ] && [ "$(state done)" = ended ] && grep -q '"exit": 0' done/status.json
verdict "C62: a finished run says so" $?
"$dltrain" train configs/iris.yaml "$long" "checkpoint.every=20 steps" --out dead >/dev/null 2>&1 &
pid=$!
wait_for dead/last.bin
[ "$(state dead)" = running ]
verdict "C62: a living run is told from its lock" $?
kill -9 $pid
wait $pid 2>/dev/null
[ "$(state dead)" = killed ] && "$dltrain" status dead | grep -q "killed: it left no end record"
verdict "C62: a run without an end record was killed" $?
"$dltrain" status dead | grep -q "checkpoint  dead/last.bin, step"
verdict "C62: and how far its checkpoint is" $?
quiet resume dead --stop-at 1
grep -q "that run was killed, it left no end record" err.txt && [ "$(state dead)" = ended ]
verdict "C62: who resumes it is told" $?
{ # a number whose square is none
    echo a,b,y
    for i in $(seq 20); do echo "$([ "$i" = 7 ] && echo 3e38 || echo 0.5),$i,$((i % 3)).5"; done
} >bad.csv
cat >nan.yaml <<'END'
dltrain: 1
data: {train: {csv: bad.csv, target: y}}
model: [{dense: 4}, {dense: 1}]
loss: mse
train: {for: 20 steps, batch: 4, optimizer: {sgd: {lr: 1e-4}}}
END
quiet train nan.yaml --out nan
code=$?
[ $code -eq 7 ] && grep -q '^cause: step [1-5]: the loss or its gradient is not finite' nan/crash.txt &&
    grep -q 'replayed node by node: the first value that is not finite' nan/crash.txt &&
    grep -q '^plan: hash ' nan/crash.txt && grep -q '^environment:' nan/crash.txt && grep -q 'last lines of the log' nan/crash.txt
verdict "C40: a diverged run exits 7 and leaves a record with cause, plan, environment and log" $?
"$dltrain" status nan | grep -q "record      nan/crash.txt"
verdict "the record is named by status" $?
python=$(command -v python3)
if [ -n "$python" ]; then
    $python -c '
import json, sys
def no(x): raise ValueError(x)
for f in sys.argv[1:]:
    for line in open(f): json.loads(line, parse_constant=no)' \
        done/metrics.jsonl dead/metrics.jsonl nan/metrics.jsonl done/status.json nan/status.json
    verdict "C62: every JSON line is strict" $?
fi
"$dltrain" train configs/iris.yaml "$long" --out segv >/dev/null 2>&1 &
pid=$!
wait_for segv/metrics.jsonl
sleep 0.2
kill -SEGV $pid
wait $pid 2>/dev/null
grep -q '^cause: signal SIGSEGV' segv/crash.txt && [ "$(state segv)" = killed ]
verdict "a fatal signal leaves a record" $?

# time limits and schedulers
quiet train configs/iris.yaml "$long" resume=auto --out auto --walltime "1 s"
[ $? -eq 75 ] && [ "$(state auto)" = ended ]
verdict "--walltime ends a run with 75" $?
first=$("$dltrain" inspect auto | sed -n 's/^step *\([0-9]*\).*/\1/p')
quiet train configs/iris.yaml "$long" resume=auto --out auto --walltime "1 s"
[ $? -eq 75 ] && [ "$("$dltrain" inspect auto | sed -n 's/^step *\([0-9]*\).*/\1/p')" -gt "$first" ]
verdict "resume: auto goes on with the run in --out" $?
"$dltrain" inspect auto | grep -q "^lineage      step $first: resumed by"
verdict "the lineage says where" $?
quiet train configs/iris.yaml resume=auto
[ $? -eq 2 ] && grep -q "resume: auto needs --out" err.txt
verdict "resume: auto wants a place" $?
"$dltrain" train configs/iris.yaml "$long" --out usr1 >/dev/null 2>&1 &
pid=$!
wait_for usr1/metrics.jsonl
kill -USR1 $pid
wait $pid
[ $? -eq 75 ] && [ -e usr1/last.bin ]
verdict "SIGUSR1 ends a run with 75 and a checkpoint" $?

# new runs from old weights
quiet train configs/iris.yaml --init done --out init "train.for=1 epochs"
[ $? -eq 0 ] && grep -q "init from .*done/last.bin: 4 tensors matched, 0 missing, 0 unused" err.txt
verdict "--init takes a run folder and reports" $?
"$dltrain" inspect init | grep -q "begun from the weights of"
verdict "and the file says what it began from" $?
quiet eval done --check && quiet eval done --check --data train
[ $? -eq 4 ] # only the last row's training mean is stored, which is over changing weights
quiet eval done --check
verdict "eval --check reproduces the stored metric" $?
quiet verify-resume configs/iris.yaml --steps 12
[ $? -eq 0 ] && grep -q "^verified: 12 updates at once and cut after 6 are the same" out.txt && ! ls -d verify-resume-* 2>/dev/null
verdict "verify-resume proves it and leaves nothing" $?

# signals in every phase: some milliseconds after the start, whatever is under way then
wrong=0
for i in $(seq 0 11); do
    set -- INT 130 TERM 143
    [ $((i % 2)) -eq 1 ] && shift 2
    rm -rf phase
    "$dltrain" train configs/iris.yaml "$long" "checkpoint.every=1 steps" --walltime "20 s" --out phase >/dev/null 2>&1 &
    pid=$!
    sleep "0.0$((i * 7 % 100 / 10))$((i * 7 % 10))"
    kill -$1 $pid
    wait $pid
    [ $? -eq "$2" ] || wrong=$((wrong + 1))
    [ -e phase/last.bin ] && { quiet inspect phase || wrong=$((wrong + 1)); }
    find phase -name '*.tmp.*' 2>/dev/null | grep -q . && wrong=$((wrong + 1))
done
[ $wrong -eq 0 ]
verdict "12 signals at times of the start: the right exit, whole files, nothing left" $?
# a signal while a table is read (packed files: tests/unit/test_reader_edges)
{ echo a,b,y; yes "1.25,2.5,c0
3.5,0.125,c1" | head -n 6000000; } >scan.csv
printf 'dltrain: 1\ndata: {train: {csv: scan.csv, target: y}}\nmodel: [{dense: 2}]\nloss: cross_entropy\ntrain: {for: 1 steps, batch: 4, optimizer: {sgd: {lr: 0.1}}}\n' >scan.yaml
"$dltrain" train scan.yaml --out scan >/dev/null 2>scan.err &
pid=$!
sleep 0.3
start=$(date +%s%N)
kill -INT $pid
wait $pid
[ $? -eq 130 ] && [ $((($(date +%s%N) - start) / 1000000)) -lt 5000 ] && [ ! -e scan ]
verdict "a signal while a table is scanned: 130 within 5 s, nothing left" $?
rm -f scan.csv
"$dltrain" train configs/iris.yaml "$long" --out twice >/dev/null 2>&1 &
pid=$!
wait_for twice/metrics.jsonl
kill -INT $pid
kill -INT $pid 2>/dev/null
wait $pid
[ $? -eq 130 ]
verdict "a second signal leaves at once" $?

# C22: the second run stops at once and names the first
"$dltrain" train configs/iris.yaml "$long" --out two >/dev/null 2>&1 &
pid=$!
wait_for two/metrics.jsonl
quiet train configs/iris.yaml --out two
[ $? -eq 6 ] && grep -q "process $pid on" err.txt
verdict "C22: a second run in the folder exits 6 and names the holder" $?
kill -9 $pid
wait $pid 2>/dev/null
quiet train configs/iris.yaml "train.for=1 epochs" --out two
verdict "C22: a dead holder's folder is taken over" $?

# C16: places that cannot be written are told before anything is computed
touch file
bad=0
long_name=$(printf 'x%.0s' $(seq 300))
for out in file file/below "$long_name" /proc/nothing; do
    quiet train configs/iris.yaml --out "$out"
    [ $? -eq 6 ] || bad=1
done
[ $bad -eq 0 ] && quiet train configs/iris.yaml --out deep/er/folder "train.for=1 epochs"
verdict "C16: impossible places exit 6, missing ones are made" $?
