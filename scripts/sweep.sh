#!/bin/bash
# One config at many settings: one run folder a point, named by the digits of its resolved config.
#
#   sweep.sh CONFIG --grid KEY=A,B,C [KEY=...] [--random N KEY=SPEC ...] [--set KEY=VALUE ...]
#   sweep.sh SPACE.yaml             the same from a file (`sweep.sh --help` shows one)
#   sweep.sh status|best DIR        table of what is there | folder of the best point
#
# points.tsv lists the points, journal.tsv what happened to them; both are only ever appended to.
# The same command again finishes what is missing (interrupted points go on from their checkpoint)
# and repeats nothing. A point that fails does not stop the others. A point is claimed by the
# system's lock on logs/ID.lock, held for as long as its processes live, so that killed sweeps,
# second sweeps and array jobs cannot run a point twice.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dltrain=${DLTRAIN:-$here/../dltrain}
[ -e "$dltrain" ] || dltrain=$here/dltrain # as installed

usage() {
    cat <<'END'
usage: sweep.sh [OPTIONS] CONFIG|SPACE.yaml     run the points that are missing
       sweep.sh status|best DIR [--goal GOAL]   table | folder of the best point
       sweep.sh point DIR INDEX                 run one point (array jobs do)
options:
  --grid KEY=A,B,C ...      every combination of these values
  --random N KEY=SPEC ...   N points: A,B,C (one of them), A..B, log:A..B or int:A..B
  --set KEY=VALUE ...       the same for all points
  --seed N                  of --random (default 1): the same seed draws the same points
  -j N                      points at a time (default: free cards, else 1)
  --out DIR                 default: sweeps/NAME
  --goal "METRIC min|max"   default: the config's checkpoint.keep.best, else test.loss min
  --retry                   run points that failed (exit 1 to 7) again
  --slurm                   run nothing: print an array script for sbatch
  --list                    run nothing: print the points
SPACE.yaml is flat: config, out, goal, jobs, random: N, draw_seed, and KEY: [A, B], log:A..B or VALUE:
  config: ../configs/iris.yaml
  goal: test.top1 max
  train.optimizer.adamw.lr: [1e-3, 3e-3]
  seed: [1, 2, 3]
exit: 0 when every point is done, diverged (7) or out of memory; else the code of the first that failed
END
}
die() { # CODE MESSAGE
    echo "sweep: $2" >&2
    exit "$1"
}

# ---- the space -------------------------------------------------------------------------------
grid=() random=() fixed=() config='' out='' goal='' jobs='' seed=1 draws=0 mode='' retry=0 action=run

is_count() { [[ $1 =~ ^[0-9]{1,9}$ ]]; }
need_count() { is_count "$2" && [ "$2" -gt 0 ] || die 2 "$1: '$2' is no number above 0"; }
add_word() { # a KEY=VALUE of the present kind, or the config
    if [[ $1 =~ ^[A-Za-z_][A-Za-z0-9_.-]*=. ]] && [ -n "$mode" ]; then
        [[ $1 != *[$'\t\n']* ]] || die 2 "'$1' holds a tab or a line end"
        case $mode in
        grid) grid+=("$1") ;;
        random) random+=("$1") ;;
        set) fixed+=("$1") ;;
        esac
    elif [ -z "$config" ] && [[ $1 != *=* ]]; then
        config=$1
    else
        die 2 "'$1' is not expected here; --grid, --random N and --set take KEY=VALUE words"
    fi
}
space_line() { # KEY VALUE WHERE: one line of a SPACE file
    local key=$1 value=$2
    case $key in
    config) config=$2 && [[ $2 == /* ]] || config=$(dirname "$space")/$2 ;;
    out) out=${out:-$2} ;;
    goal) goal=${goal:-$2} ;;
    jobs) need_count "$3: jobs" "$2" && jobs=${jobs:-$2} ;;
    random) need_count "$3: random" "$2" && draws=$2 ;;
    draw_seed) need_count "$3: draw_seed" "$2" && seed=$2 ;;
    *)
        if [[ $value == \[*\] ]]; then
            value=${value#\[} value=${value%\]}
            value=$(sed 's/ *, */,/g; s/^ *//; s/ *$//' <<<"$value")
            if [ "$draws" -gt 0 ]; then random+=("$key=$value"); else grid+=("$key=$value"); fi
        elif [[ $value =~ ^(log:|int:)?[-+0-9.eE]+\.\.[-+0-9.eE]+$ ]]; then
            [ "$draws" -gt 0 ] || die 2 "$3: $key: a range needs 'random: N' above it"
            random+=("$key=$value")
        else
            fixed+=("$key=$value")
        fi
        ;;
    esac
}
read_space() { # the flat YAML described in the usage; everything else is refused with its line
    local space=$1 line n=0 key value
    while IFS= read -r line || [ -n "$line" ]; do
        n=$((n + 1))
        line=${line%$'\r'}
        [[ $line =~ ^[[:space:]]*(#.*)?$ ]] && continue
        [[ $line =~ ^([A-Za-z_][A-Za-z0-9_.-]*):[[:space:]]+([^[:space:]].*)$ ]] ||
            die 2 "$space:$n: expects 'KEY: VALUE' at the beginning of the line"
        key=${BASH_REMATCH[1]} value=$(sed 's/[[:space:]]#.*$//; s/[[:space:]]*$//' <<<"${BASH_REMATCH[2]}")
        [[ $value =~ ^\"(.*)\"$ || $value =~ ^\'(.*)\'$ ]] && value=${BASH_REMATCH[1]}
        space_line "$key" "$value" "$space:$n"
    done <"$space"
    [ -n "$config" ] || die 2 "$space: 'config' is required"
}

# "KEY=A,B,C" words -> one line a combination, settings separated by tabs
combine() {
    awk -v OFS='\t' 'BEGIN {
        n = ARGC - 1; total = 1
        for (i = 1; i <= n; i++) {
            eq = index(ARGV[i], "="); key[i] = substr(ARGV[i], 1, eq)
            m[i] = split(substr(ARGV[i], eq + 1), v, ",")
            for (j = 1; j <= m[i]; j++) value[i, j] = v[j]
            total *= m[i]
        }
        if (total > 100000) exit 3
        for (t = 0; t < total; t++) {
            rest = t; line = ""
            for (i = n; i >= 1; i--) {
                line = key[i] value[i, rest % m[i] + 1] (line == "" ? "" : OFS line)
                rest = int(rest / m[i])
            }
            print line
        }
    }' "$@"
}
# N lines of drawn settings. Lehmer generator (a = 48271, m = 2^31 - 1; Park and Miller 1993): the
# same everywhere, so that a restart draws the same points.
draw() { # N SEED WORDS
    awk -v OFS='\t' 'function u() { s = (s * 48271) % 2147483647; return s / 2147483647 }
    BEGIN {
        n = ARGV[1]; s = ARGV[2] % 2147483646 + 1
        for (i = 0; i < 10; i++) u()
        for (t = 0; t < n; t++) {
            line = ""
            for (i = 3; i < ARGC; i++) {
                eq = index(ARGV[i], "="); spec = substr(ARGV[i], eq + 1); kind = ""
                if (spec ~ /^(log|int):/) { kind = substr(spec, 1, 3); spec = substr(spec, 5) }
                dots = index(spec, ".."); a = substr(spec, 1, dots - 1); b = substr(spec, dots + 2)
                if (!dots) { m = split(spec, v, ","); x = v[int(u() * m) + 1] }
                else if (a + 0 >= b + 0 || (kind == "log" && a + 0 <= 0)) exit 3
                else if (kind == "log") x = sprintf("%.6g", exp(log(a) + u() * (log(b) - log(a))))
                else if (kind == "int") x = sprintf("%d", a + int(u() * (b - a + 1)))
                else x = sprintf("%.6g", a + u() * (b - a))
                line = line (line == "" ? "" : OFS) substr(ARGV[i], 1, eq) x
            }
            print line
        }
    }' "$@"
}
settings_of_all_points() {
    if [ ${#grid[@]} -gt 0 ]; then combine "${grid[@]}" || die 2 "--grid: more than 100,000 points"; fi
    if [ ${#random[@]} -gt 0 ]; then
        [ "$draws" -gt 0 ] || die 2 "--random needs a number of points: --random N KEY=SPEC"
        draw "$draws" "$seed" "${random[@]}" || die 2 "--random: a range A..B needs A < B, and A > 0 for log"
    fi
    if [ $((${#grid[@]} + ${#random[@]})) -eq 0 ]; then echo; fi
}

# ---- points ----------------------------------------------------------------------------------
# points.tsv: ID, absolute config, settings ...   The ID is the hash of the resolved config; a config
# that does not resolve has one made from its settings, so that its failure is kept as well.
point_id() { # CONFIG SETTING ...
    local id
    id=$("$dltrain" config --hash --quiet "$@" 2>/dev/null) && [[ $id =~ ^[0-9a-f]{16}$ ]] ||
        id=bad-$(printf '%s\n' "$@" | cksum | cut -d' ' -f1)
    echo "$id"
}
write_points() { # adds the points of this command that are not listed yet; sets ids
    local line setting id
    declare -A listed=()
    while IFS=$'\t' read -r id _; do listed[$id]=1; done <"$out/points.tsv"
    ids=()
    while IFS= read -r line; do
        IFS=$'\t' read -r -a setting <<<"$line"
        setting=(${fixed[@]+"${fixed[@]}"} ${setting[@]+"${setting[@]}"})
        id=$(point_id "$config" ${setting[@]+"${setting[@]}"})
        ids+=("$id")
        [ -z "${listed[$id]:-}" ] || continue
        listed[$id]=1
        (IFS=$'\t' && echo "$id"$'\t'"$config"${setting[*]+$'\t'"${setting[*]}"}) >>"$out/points.tsv" ||
            die 6 "cannot write $out/points.tsv"
    done <<<"$1"
}
journal() { # EVENT ID [EXIT]: one short line, one write
    printf '%s\t%s\t%s\t%s\n' "$(date +%s)" "$1" "$2" "${3:-}" >>"$out/journal.tsv"
}
# The last exit code of a point that is over for good; 75, 130, 143 and deaths by signals go on.
ended() {
    awk -F'\t' -v id="$1" '$2 == "end" && $3 == id { code = $4 } END { print code }' "$out/journal.tsv"
}
is_over() { # ID
    local code
    code=$(ended "$1")
    [ -n "$code" ] && [ "$code" -lt 8 ] && { [ "$code" -eq 0 ] || [ "$retry" -eq 0 ]; }
}
# dltrain with its output in the point's log; signals that this shell gets are passed on, and it stays
# to write down how the run ended.
run_dltrain() { # ID ARGUMENT ...
    local log=$out/logs/$1.txt child='' passed='' s code
    shift
    for s in INT TERM HUP USR1; do
        # shellcheck disable=SC2064
        trap "passed=$s; [ -z \"\$child\" ] || kill -s $s \"\$child\"" "$s"
    done
    "$dltrain" "$@" >>"$log" 2>&1 &
    child=$!
    [ -z "$passed" ] || kill -s "$passed" "$child"
    while :; do
        passed=''
        wait "$child"
        code=$?
        [ -n "$passed" ] || return "$code"
    done
}
# Runs a point whose lock is held. A run whose end did not reach the journal, because the sweep was
# killed in between, has its code in status.json; one that was cut short goes on.
run_point() { # ID; leaves with the point's exit code
    local id=$1 run=$out/$1 setting code='' last
    IFS=$'\t' read -r -a setting < <(awk -F'\t' -v id="$id" '$1 == id { print; exit }' "$out/points.tsv")
    last=$(ended "$id")
    if [ -z "$last" ] && [ -f "$run/status.json" ]; then
        code=$(sed -n 's/.*"exit": \([0-9]*\).*/\1/p' "$run/status.json")
    fi
    if [ -z "$code" ] || [ "$code" -gt 7 ]; then
        journal start "$id"
        if [ -d "$run" ] && [ -n "$last" ] && [ "$last" -lt 8 ]; then
            mv "$run" "$run.failed-$(date +%s)" # --retry
        fi
        if [ -f "$run/last.bin" ]; then
            run_dltrain "$id" resume "$run"
        else
            run_dltrain "$id" train "${setting[@]:1}" --out "$run"
        fi
        code=$?
    fi
    journal end "$id" "$code"
    exit "$code"
}
claim_and_run() { # ID wait|now; 200: another process has it
    exec 8>>"$out/logs/$1.lock"
    if [ "$2" = wait ]; then flock 8; else flock -n 8 || exit 200; fi
    is_over "$1" && exit "$(ended "$1")"
    run_point "$1"
}

# ---- running ---------------------------------------------------------------------------------
# Cards with at least half of their memory free, one a line; those allowed by CUDA_VISIBLE_DEVICES.
free_cards() {
    "$dltrain" devices --json 2>/dev/null | awk -v allowed="${CUDA_VISIBLE_DEVICES-}" -F'[":, ]+' '
        BEGIN { n = split(allowed, name, ",") }
        $2 == "device" { card = $3 == "cuda" ? $4 : "" }
        $2 == "memory_bytes" { all = $3 }
        $2 == "free_bytes" && card != "" && 2 * $3 >= all { print n ? name[card + 1] : card }'
}
stop_all() { # SIGNAL CODE: every point saves and ends; they go on at the next start
    echo "sweep: stopping; running points save their state" >&2
    local pid
    for pid in "${!slot_of[@]}"; do kill -s "$1" "$pid" 2>/dev/null; done
    wait
    exit "$2"
}
start_one() { # ID wait|now: into a slot that is free
    local slot=0 used=" ${slot_of[*]:-} "
    while [[ $used == *" $slot "* ]]; do slot=$((slot + 1)); done
    if [ ${#cards[@]} -gt 0 ]; then export CUDA_VISIBLE_DEVICES=${cards[slot % ${#cards[@]}]}; fi
    (claim_and_run "$1" "$2") &
    slot_of[$!]=$slot
    id_of[$!]=$1
}
reap() { # waits for one point; busy ones are tried again at the end
    local pid code
    wait -n -p pid 2>/dev/null
    code=$?
    [ -n "${pid:-}" ] || return 0
    [ $code -ne 200 ] || busy+=("${id_of[$pid]}")
    [ $code -eq 200 ] || echo "sweep: ${id_of[$pid]} ended with exit $code" >&2
    # shellcheck disable=SC2184
    unset "slot_of[$pid]" "id_of[$pid]"
}
run_all() { # wait|now ID ...
    local how=$1 id
    shift
    for id in "$@"; do
        is_over "$id" && continue
        while [ ${#slot_of[@]} -ge "$jobs" ]; do reap; done
        start_one "$id" "$how"
    done
    while [ ${#slot_of[@]} -gt 0 ]; do reap; done
}
declare -A slot_of=() id_of=()
busy=() cards=()
run_sweep() {
    mapfile -t cards < <(free_cards)
    jobs=${jobs:-${#cards[@]}}
    [ "$jobs" -gt 0 ] || jobs=1
    set -m # each point is a process group of its own: Ctrl-C reaches the sweep alone
    trap 'stop_all INT 130' INT
    trap 'stop_all TERM 143' TERM HUP
    mapfile -t ids < <(printf '%s\n' "${ids[@]}" | awk '!seen[$0]++')
    run_all now "${ids[@]}"
    local again=(${busy[@]+"${busy[@]}"})
    if [ ${#again[@]} -gt 0 ]; then
        echo "sweep: waiting for ${#again[@]} points that other processes run" >&2
        run_all wait "${again[@]}"
    fi
}

# ---- results ---------------------------------------------------------------------------------
find_goal() {
    [ -z "$goal" ] || return 0
    local first
    for first in "$out"/*/resolved.yaml; do
        [ -f "$first" ] || continue
        goal=$(sed -n 's/^    best: 1 by \([^ ]*\) \(m[a-z]*\)$/\1 \2/p' "$first")
        [ -n "$goal" ] || ! grep -q '^  test:' "$first" || goal="test.loss min"
        [ -z "$goal" ] || return 0
    done
    goal="train.loss min"
}
# One line a point: ID, state, exit, goal's value, step, seconds, settings. The value of a split that
# is measured in training is the best of the run, as best.bin is; that of train and test the last.
collect() {
    local id config settings code state csv value
    while IFS=$'\t' read -r id config settings; do
        code=$(ended "$id") state=waiting csv=$out/$id/metrics.csv value=$'\t\t'
        case $code in
        0) state=done ;;
        7) state=diverged ;;
        5 | 6) state=failed && out_of_memory "$id" && state="out of memory" ;;
        75 | 130 | 143) state=stopped ;;
        '') grep -q "start"$'\t'"$id"$'\t' "$out/journal.tsv" && state=killed ;;
        *) state=failed && [ "$code" -gt 7 ] && state=killed ;;
        esac
        [[ $state == killed || $state == stopped ]] && ! flock -n "$out/logs/$id.lock" true && state=running
        [ -f "$csv" ] && value=$(value_in "$csv")
        printf '%s\t%s\t%s\t%s\t%s\n' "$id" "$state" "$code" "$value" "$settings"
    done <"$out/points.tsv"
}
out_of_memory() { grep -qE '^error: .*(memory|device, but .* are free)' "$out/logs/$1.txt"; }
value_in() {
    awk -F, -v name="${goal% *}" -v way="${goal##* }" '
        NR == 1 { for (i = 1; i <= NF; i++) col[$i] = i; c = col[name]; next }
        { step = $col["step"]; time = $col["time_s"] }
        c && $c != "" && $c !~ /nan|inf/ {
            better = way == "max" ? $c + 0 > v + 0 : $c + 0 < v + 0
            if (!seen++ || name !~ /^val\./ || better) v = $c
        }
        END { printf "%s\t%s\t%.1f", v, step, time }' "$1"
}
sorted() { # points without a value last
    local order=-g
    [ "${goal##* }" = max ] && order=-gr
    collect >"$out/.rows.$$"
    awk -F'\t' '$4 != "" && $2 == "done"' "$out/.rows.$$" | sort -t$'\t' -s $order -k4,4
    awk -F'\t' '$4 == "" || $2 != "done"' "$out/.rows.$$"
    rm -f "$out/.rows.$$"
}
write_csv() { # results.csv appears whole; a column for every key that was set
    awk -F'\t' -v goal="${goal% *}" '
        function q(s) { if (s ~ /[",]/) { gsub(/"/, "\"\"", s); s = "\"" s "\"" } return s }
        { for (f = 1; f <= 6; f++) cell[NR, f] = $f
          for (f = 7; f <= NF; f++) { eq = index($f, "="); k = substr($f, 1, eq - 1)
            if (k != "" && !(k in at)) { at[k] = ++n; key[n] = k }
            if (k != "") set[NR, k] = substr($f, eq + 1) } }
        END { printf "id,state,exit,%s,step,seconds", goal
              for (i = 1; i <= n; i++) printf ",%s", q(key[i]); print ""
              for (r = 1; r <= NR; r++) { printf "%s", cell[r, 1]
                for (f = 2; f <= 6; f++) printf ",%s", q(cell[r, f])
                for (i = 1; i <= n; i++) printf ",%s", q(set[r, key[i]]); print "" } }' >"$out/.results.$$" &&
        mv "$out/.results.$$" "$out/results.csv"
}
table() {
    local rows
    rows=$(sorted)
    write_csv <<<"$rows"
    awk -F'\t' -v goal="${goal% *}" '
        BEGIN { printf "%-4s %-18s %-14s %4s %-14s %8s %9s  %s\n", "", "point", "state", "exit", goal, "step", "seconds", "settings" }
        { line = ""; for (f = 7; f <= NF; f++) line = line (f > 7 ? " " : "") $f; count[$2]++
          printf "%-4d %-18s %-14s %4s %-14s %8s %9s  %s\n", NR, $1, $2, $3, $4, $5, $6, line }
        END { printf "%d points:", NR; for (s in count) printf " %d %s", count[s], s; print "" }' <<<"$rows"
    echo "sorted by $goal; $out/results.csv has the same"
    if [ "${goal#test.}" != "$goal" ]; then
        echo "sweep: the test split chooses here, so its figures are no longer those of unseen data" >&2
    fi
}
best() {
    local id
    id=$(sorted | awk -F'\t' '$2 == "done" && $4 != "" { print $1; exit }')
    [ -n "$id" ] || die 7 "$out: no point is done with a value of ${goal% *}"
    echo "$out/$id"
}
# 0, or the code of the first point that did not come to a result.
verdict() {
    collect | awk -F'\t' -v ids=" ${ids[*]} " 'index(ids, " " $1 " ") &&
        $2 != "done" && $2 != "diverged" && $2 != "out of memory" { print $3 == "" ? 137 : $3; exit }'
}
print_slurm() {
    local tasks
    tasks=$(awk -F'\t' -v ids=" ${ids[*]} " 'index(ids, " " $1 " ") { printf "%s%d", n++ ? "," : "", NR }' "$out/points.tsv")
    cat <<END
#!/bin/bash
#SBATCH --job-name=$(basename "$out")
#SBATCH --array=$tasks${jobs:+%$jobs}
#SBATCH --output=$out/logs/slurm-%a.txt
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
# sbatch this file; add --partition, --gpus and --time as your cluster wants them. A task that is cut
# short saves its state (exit 75) and is queued again.
$(printf '%q ' env "DLTRAIN=$(realpath "$dltrain")" "$here/sweep.sh" point "$out")"\$SLURM_ARRAY_TASK_ID" &
task=\$!
trap 'kill -s USR1 \$task; wait \$task; code=\$?' USR1
wait \$task
code=\${code:-\$?}
[ "\$code" -ne 75 ] || scontrol requeue "\${SLURM_ARRAY_JOB_ID}_\$SLURM_ARRAY_TASK_ID"
exit "\$code"
END
}

# ---- the command -----------------------------------------------------------------------------
open_dir() { # DIR
    [ -f "$1/points.tsv" ] || die 2 "$1: no sweep is here (points.tsv is missing)"
    out=$(cd "$1" && pwd) || exit 6
}
case ${1:-} in
status | best | point)
    action=$1
    [ $# -ge 2 ] || die 2 "$action needs a folder: sweep.sh $action DIR"
    open_dir "$2"
    [ "$action" != point ] || { is_count "${3:-}" && index=$3; } || die 2 "point needs the number of a line of points.tsv"
    [ "$action" = point ] && shift 3 || shift 2
    ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
    --grid | --set) mode=${1#--} ;;
    --random) mode=random && shift && need_count --random "${1:-}" && draws=$1 ;;
    --seed) shift && need_count --seed "${1:-}" && seed=$1 ;;
    -j) shift && need_count -j "${1:-}" && jobs=$1 ;;
    -j*) need_count -j "${1#-j}" && jobs=${1#-j} ;;
    --out) shift && out=${1:?} ;;
    --goal) shift && goal=${1:?} ;;
    --retry) retry=1 ;;
    --slurm | --list) action=${1#--} ;;
    -h | --help) usage && exit 0 ;;
    -*) die 2 "unknown option '$1'; sweep.sh --help lists them" ;;
    *) add_word "$1" ;;
    esac
    shift
done
if [ -n "$goal" ] && ! [[ $goal =~ ^[a-z]+\.[a-z0-9_]+\ (min|max)$ ]]; then
    die 2 "--goal: '$goal' is not of the form 'val.top1 max'"
fi
case $action in
status) find_goal && table && exit 0 ;;
best) find_goal && best && exit 0 ;;
point)
    id=$(awk -F'\t' -v n="$index" 'NR == n { print $1 }' "$out/points.tsv")
    [ -n "$id" ] || die 2 "$out/points.tsv has no line $index"
    claim_and_run "$id" wait
    ;;
esac
[ -n "$config" ] || { usage >&2 && exit 2; }
[ -x "$dltrain" ] || die 2 "$dltrain is not there; run make, or set DLTRAIN"
[ -f "$config" ] || die 2 "$config: no such file"
name=$(basename "$config" .yaml)
if ! grep -qE '^(model|extends):' "$config" && grep -q '^config:' "$config"; then
    space=$config config=''
    read_space "$space"
    [ -f "$config" ] || die 2 "$space: config: $config: no such file"
fi
config=$(realpath "$config")
points=$(settings_of_all_points) || exit $?
if [ "$action" = list ]; then
    printf '%s\n' "$points"
    exit 0
fi
out=${out:-sweeps/$name}
mkdir -p "$out/logs" 2>/dev/null && out=$(cd "$out" && pwd) && touch "$out/points.tsv" "$out/journal.tsv" 2>/dev/null ||
    die 6 "cannot write into $out"
write_points "$points"
[ "$action" != slurm ] || { print_slurm && exit 0; }
run_sweep
find_goal
table
code=$(verdict)
exit "${code:-0}"
