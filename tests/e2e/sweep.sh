#!/bin/bash
# scripts/sweep.sh as a user runs it. Cases C19, C20, and C22 through the script: every point its own
# folder, a failed or killed point keeps its exit code and stops nobody, whatever is killed a second
# start finishes what is missing, repeats nothing, and ends with the undisturbed sweep's numbers.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
export DLTRAIN=$dltrain
sweep=$root/scripts/sweep.sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
run() { # OUT ARGUMENT ...: a sweep over $work/OUT; its exit code is kept in $code
    local out=$work/$1
    shift
    "$sweep" "$@" --out "$out" >"$work/stdout" 2>"$work/stderr"
    code=$?
}
starts() { grep -c $'\tstart\t' "$1/journal.tsv"; }
# every point's metrics without the columns that hold times
metrics() {
    for f in "$1"/*/metrics.csv; do
        [ -e "$f" ] || continue
        basename "$(dirname "$f")"
        cut -d, -f1,2,4-10 "$f"
    done
}
rows() { awk 'NR > 1' "$1/results.csv" | wc -l; }

iris=$root/configs/iris.yaml
short="train.for=5 epochs"

# C19: 2 x 3 points, then all six at once
run six "$iris" --grid seed=1,2 lr=1e-3,3e-3,1e-2 --set "$short" -j 2
[ $code -eq 0 ] && [ "$(find "$work/six" -name last.bin | wc -l)" -eq 6 ] && [ "$(rows "$work/six")" -eq 6 ]
verdict "C19: 2 x 3 points, 6 folders, 6 checkpoints, 6 rows" $?
good=0
for run in "$work/six"/*/; do
    case $run in */logs/) continue ;; esac
    "$dltrain" eval "$run" --check >/dev/null 2>&1 && good=$((good + 1))
done
[ $good -eq 6 ]
verdict "C19: the six checkpoints are complete and reproduce their metrics" $?
run at_once "$iris" --grid seed=1,2 lr=1e-3,3e-3,1e-2 --set "$short" -j 6
[ $code -eq 0 ] && cmp -s <(metrics "$work/six") <(metrics "$work/at_once")
verdict "C19: all at once gives the same numbers" $?
id=$("$dltrain" config --hash "$iris" seed=2 lr=3e-3 "$short" 2>/dev/null)
[ -d "$work/six/$id" ]
verdict "a folder is named by the resolved config's hash" $?
sort -t, -k4,4g <(tail -n +2 "$work/six/results.csv") | cmp -s - <(tail -n +2 "$work/six/results.csv")
verdict "results are sorted by the goal" $?
[ "$("$sweep" best "$work/six")" = "$work/six/$(sed -n 2p "$work/six/results.csv" | cut -d, -f1)" ]
verdict "best names the folder of the first row" $?
"$sweep" status "$work/six" 2>/dev/null | grep -q '^6 points: 6 done$'
verdict "status counts the points" $?
"$sweep" status "$work/six" --goal "test.top1 max" >/dev/null 2>&1
sort -t, -s -k4,4gr <(tail -n +2 "$work/six/results.csv") | cmp -s - <(tail -n +2 "$work/six/results.csv")
verdict "status sorts by another goal" $?
cp "$work/six/journal.tsv" "$work/before"
run six "$iris" --grid seed=1,2 lr=1e-3,3e-3,1e-2 --set "$short"
[ $code -eq 0 ] && cmp -s "$work/before" "$work/six/journal.tsv"
verdict "the same command again repeats nothing" $?
run six "$iris" --grid seed=1,2,3 lr=0.001,0.003 --set "$short"
[ $code -eq 0 ] && [ "$(starts "$work/six")" -eq 8 ]
verdict "a wider grid runs the new points alone, however numbers are spelt" $?

# C20: a bad config in the middle; a point killed by SIGKILL
run bad "$iris" --grid lr=1e-3,nonsense,1e-2 --set "$short"
[ $code -eq 2 ] && [ "$(starts "$work/bad")" -eq 3 ] && grep -q '^3 points:.* 2 done' "$work/stdout" &&
    grep -q 'bad-[0-9]*,failed,2,' "$work/bad/results.csv"
verdict "C20: a bad config in the middle: 3 attempted, 2 done, exit 2" $?
long="train.for=1000 epochs"
mark="log.every=1000 steps"
"$sweep" "$iris" --grid lr=1e-3,2e-3,3e-3 --set "$long" "$mark" --out "$work/killed" >"$work/stdout" 2>&1 &
pid=$!
for _ in $(seq 200); do
    sleep 0.05
    victim=$(sed -n 's/^pid \([0-9]*\) .*/\1/p' "$work"/killed/*/lock 2>/dev/null | head -1)
    [ -n "$victim" ] && [ "$(starts "$work/killed")" -ge 2 ] && kill -9 "$victim" 2>/dev/null && break
done
wait $pid
[ $? -eq 137 ] && grep -q ',killed,137,' "$work/killed/results.csv" && [ "$(grep -c ',done,0,' "$work/killed/results.csv")" -eq 2 ]
verdict "C20: a point killed by SIGKILL: the other two are done, exit 137" $?
run killed "$iris" --grid lr=1e-3,2e-3,3e-3 --set "$long" "$mark"
[ $code -eq 0 ] && [ "$(starts "$work/killed")" -eq 4 ]
verdict "C20: the next start runs the killed point alone" $?

# results that are no failures: divergence, too little memory
cat >"$work/line.yaml" <<END
dltrain: 1
vars: {width: 4}
data: {train: {csv: $root/datasets/samples/iris.csv, target: petal_width, ignore: species}}
model: [{dense: \$width}, {dense: \$width}, {dense: 1}]
loss: mse
train: {for: 4 epochs, batch: 16, optimizer: {sgd: {lr: 1e-3}}}
END
run ends "$work/line.yaml" --grid lr=1e-3,10
[ $code -eq 0 ] && grep -q ',diverged,7,' "$work/ends/results.csv" && grep -q '^2 points:.* 1 diverged' "$work/stdout"
verdict "divergence is a result with its exit code" $?
run ends "$work/line.yaml" --grid vars.width=4,1000000
[ $code -eq 0 ] && grep -q ',out of memory,6,' "$work/ends/results.csv"
verdict "too little memory is a result with its exit code" $?
before=$(starts "$work/ends")
run ends "$work/line.yaml" --grid lr=1e-3,10 --retry
[ $code -eq 0 ] && [ "$(starts "$work/ends")" -eq $((before + 1)) ]
verdict "--retry runs the failed point again, and it alone" $?

# kill -9 of the sweep, with and without its points; SIGTERM; two sweeps at once
grid=(--grid lr=1e-3,2e-3,3e-3 seed=1,2 --set "train.for=400 epochs" "$mark" "checkpoint.every=20 epochs" -j 2)
run whole "$iris" "${grid[@]}"
for kind in sweep all; do
    for after in 0.1 0.45; do
        dir=$work/$kind$after
        setsid "$sweep" "$iris" "${grid[@]}" --out "$dir" >/dev/null 2>&1 &
        pid=$!
        sleep "$after"
        if [ $kind = sweep ]; then
            kill -9 $pid
        else # the sweep first, so that it starts nothing more, then everything of its session
            kill -9 $pid
            for child in $(ps -s $pid -o pid= 2>/dev/null); do kill -9 "$child" 2>/dev/null; done
        fi
        wait $pid 2>/dev/null
        run "$kind$after" "$iris" "${grid[@]}"
        [ $code -eq 0 ] && cmp -s <(metrics "$work/whole") <(metrics "$dir")
        verdict "kill -9 of the $kind after $after s: the next start ends with the same numbers" $?
        [ "$(awk -F'\t' '$2 == "end" && $4 == 0 { print $3 }' "$dir/journal.tsv" | sort | uniq -d | wc -l)" -eq 0 ]
        verdict "kill -9 of the $kind after $after s: no point is done twice" $?
    done
done
"$sweep" "$iris" "${grid[@]}" --out "$work/term" >/dev/null 2>"$work/stderr" &
pid=$!
sleep 0.4
kill -TERM $pid
wait $pid
[ $? -eq 143 ] && ! grep -q $'end\t.*\t0$' <(tail -n 1 "$work/term/journal.tsv")
verdict "SIGTERM: running points save, exit 143" $?
run term "$iris" "${grid[@]}"
[ $code -eq 0 ] && cmp -s <(metrics "$work/whole") <(metrics "$work/term")
verdict "SIGTERM: the next start ends with the same numbers" $?
"$sweep" "$iris" "${grid[@]}" --out "$work/two" >/dev/null 2>&1 &
pid=$!
run two "$iris" "${grid[@]}"
wait $pid
[ $? -eq 0 ] && [ $code -eq 0 ] && [ "$(starts "$work/two")" -eq 6 ] && cmp -s <(metrics "$work/whole") <(metrics "$work/two")
verdict "C22: two sweeps in one folder share the points" $?

# drawn points
"$sweep" "$iris" --random 50 lr=log:1e-4..1e-1 seed=int:3..9 train.batch=8,16 --list >"$work/draw1"
"$sweep" "$iris" --random 50 lr=log:1e-4..1e-1 seed=int:3..9 train.batch=8,16 --list >"$work/draw2"
cmp -s "$work/draw1" "$work/draw2" && [ "$(sort -u "$work/draw1" | wc -l)" -eq 50 ]
verdict "the same seed draws the same points" $?
awk -F'[=\t]' '$2 < 1e-4 || $2 > 1e-1 || $4 < 3 || $4 > 9 || $4 % 1 || ($6 != 8 && $6 != 16) { bad++ }
    { low += $2 < 3.16e-3 } END { exit bad || low < 15 || low > 35 }' "$work/draw1"
verdict "draws stay in their ranges, log: even in its logarithm" $?
"$sweep" "$iris" --random 50 lr=log:1e-4..1e-1 --seed 2 --list | cmp -s - "$work/draw1"
[ $? -eq 1 ]
verdict "another seed draws other points" $?

# from a file
cat >"$work/space.yaml" <<END
# two rates, three seeds
config: $iris
goal: test.top1 max
jobs: 2
lr: [1e-3, 3e-3]
seed: [1, 2, 3]   # drawn by hand
train.for: "5 epochs"
END
run space "$work/space.yaml"
[ $code -eq 0 ] && [ "$(rows "$work/space")" -eq 6 ] && grep -q '^sorted by test.top1 max' "$work/stdout" && [ -d "$work/space/$id" ]
verdict "a space file means the same as options" $?
printf 'config: %s\nrandom: 4\nlr: log:1e-3..1e-1\n' "$iris" >"$work/drawn.yaml"
[ "$("$sweep" "$work/drawn.yaml" --list | wc -l)" -eq 4 ]
verdict "a space file draws" $?
for line in 'lr [1, 2]' '  lr: [1, 2]' 'random: x' 'jobs: 0' 'lr: log:1e-3..1e-1'; do
    printf 'config: %s\n%s\n' "$iris" "$line" >"$work/wrong.yaml"
    "$sweep" "$work/wrong.yaml" --out "$work/wrong" >/dev/null 2>"$work/stderr"
    [ $? -eq 2 ] && grep -q "wrong.yaml:2: " "$work/stderr"
    verdict "space file refused with its line: $line" $?
done
for words in "$iris --grid" "$iris --grid lr" "--grid lr=1" "$iris --random lr=1,2" "$iris -j 0" "$iris --random 3 lr=2..1" \
    "$iris --random 3 lr=log:0..1" "$iris --goal best" "$iris --jbos 2" "nobody.yaml --grid lr=1" "status $work/nowhere" "point $work/six x"; do
    # shellcheck disable=SC2086
    [ "$words" = "$iris --grid" ] && continue # one point is a sweep as well
    "$sweep" $words >/dev/null 2>&1
    [ $? -eq 2 ]
    verdict "refused: ${words#"$root"/}" $?
done

# array jobs: every task of the script runs its own point, in any order
"$sweep" "$iris" --grid lr=1e-3,3e-3 seed=1,2 --set "$short" --out "$work/array" --slurm -j 3 >"$work/array.sh" 2>/dev/null
bash -n "$work/array.sh" && grep -q '^#SBATCH --array=1,2,3,4%3$' "$work/array.sh" && [ "$(starts "$work/array")" -eq 0 ]
verdict "--slurm prints an array script and runs nothing" $?
bad=0
for task in 3 1 4 2; do SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_JOB_ID=1 bash "$work/array.sh" || bad=1; done
[ $bad -eq 0 ] && "$sweep" status "$work/array" 2>/dev/null | grep -q '^4 points: 4 done$'
verdict "the tasks of the array finish all points" $?
"$sweep" "$iris" --grid lr=1e-3 --set "$long" "$mark" --out "$work/walltime" --slurm >"$work/array.sh" 2>/dev/null
mkdir -p "$work/bin"
printf '#!/bin/sh\necho "$@" >%s/requeued\n' "$work" >"$work/bin/scontrol"
chmod +x "$work/bin/scontrol"
PATH=$work/bin:$PATH SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_JOB_ID=7 bash "$work/array.sh" &
pid=$!
for _ in $(seq 100); do [ -s "$work"/walltime/*/metrics.csv ] && break || sleep 0.02; done 2>/dev/null
kill -USR1 $pid
wait $pid
[ $? -eq 75 ] && grep -q '^requeue 7_1$' "$work/requeued"
verdict "a task at its time limit saves, exits 75 and is queued again" $?

# free cards are shared out; a card whose memory is taken, or that is not allowed, is left alone
cat >"$work/fake" <<'END'
#!/bin/sh
case $1 in
devices) cat <<JSON
{
  "devices": [
    {
      "device": "cpu",
      "memory_bytes": 100,
      "free_bytes": 90
    },
    {
      "device": "cuda:0",
      "memory_bytes": 100,
      "free_bytes": 90
    },
    {
      "device": "cuda:1",
      "memory_bytes": 100,
      "free_bytes": 20
    },
    {
      "device": "cuda:2",
      "memory_bytes": 100,
      "free_bytes": 100
    }
  ]
}
JSON
    ;;
config) printf '%016x\n' "$(printf '%s' "$*" | cksum | cut -d' ' -f1)" ;;
train) echo "$CUDA_VISIBLE_DEVICES" >>"${0%/*}/cards" && sleep 0.2 ;;
esac
END
chmod +x "$work/fake"
DLTRAIN=$work/fake "$sweep" "$iris" --grid seed=1,2,3,4 --out "$work/gpu" >/dev/null 2>&1
[ "$(sort "$work/cards" | tr '\n' ' ')" = "0 0 2 2 " ]
verdict "free cards are shared out" $?
rm -f "$work/cards"
CUDA_VISIBLE_DEVICES=4,5,7 DLTRAIN=$work/fake "$sweep" "$iris" --grid seed=1,2 --out "$work/gpu2" >/dev/null 2>&1
[ "$(sort "$work/cards" | tr '\n' ' ')" = "4 7 " ]
verdict "CUDA_VISIBLE_DEVICES is kept to" $?

# a folder that cannot be written
"$sweep" "$iris" --grid seed=1 --out /proc/nowhere >/dev/null 2>&1
[ $? -eq 6 ]
verdict "C16: an output folder that cannot be made: exit 6" $?
