#!/bin/sh
# The parity suite (small shapes, every kernel forced) and whole steps under compute-sanitizer: memcheck,
# racecheck, initcheck, synccheck. Each tool gets its time on all processors; what it has not reached by
# then is skipped, and said so. The rows a shard runs are spread evenly over the suite. Kernels of cuBLASLt and
# cuDNN get what we pass them checked (memcheck); what they do inside is theirs.
# usage: sanitize.sh BUILD [TOOL...]   SECONDS_EACH: time of a tool (60); SHARDS: processes (16); FROM: first row (0)
build=${1:?usage: sanitize.sh BUILD [TOOL...]}
shift
tools=${*:-memcheck racecheck initcheck synccheck}
seconds=${SECONDS_EACH:-60} shards=${SHARDS:-16}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "skip sanitizer: compute-sanitizer is not installed"; exit 0; }
[ -e /dev/nvidiactl ] || { echo "skip sanitizer: no GPU here"; exit 0; }
log=$build/sanitize
mkdir -p "$log"
failed=0

# They leave memory that they do not use unwritten, and wait in ways that the other tools do not follow (the
# barriers of Hopper's copies: races and missing barriers are seen where none are). Of our own, racecheck takes the
# copies of statistics in attention's gradient by heads for races with the reads before them: there one lane arrives for
# its warp, behind __syncwarp. Where every lane arrived for itself, it found nothing (0 of 110).
words() { # TOOL
    [ "$1" = memcheck ] || echo "--kernel-regex-exclude kns=cutlass --kernel-regex-exclude kns=cudnn"
    [ "$1" != racecheck ] || echo "--kernel-regex-exclude kns=flash_hopper"
}
rows_of() { # TOOL
    [ "$1" = memcheck ] || echo "--without .lt.dnn.best"
}
one() { # TOOL NAME PROGRAM...
    one_tool=$1 one_name=$2
    shift 2
    timeout "$seconds" "$sanitizer" --tool "$one_tool" $(words "$one_tool") --error-exitcode 9 --print-limit 20 \
        "$@" >"$log/$one_tool.$one_name" 2>&1
    echo "exit $?" >>"$log/$one_tool.$one_name"
}
for tool in $tools; do
    rm -f "$log/$tool".*
    i=0
    while [ $i -lt "$shards" ]; do
        one "$tool" "$i" "$build/tests/parity/test_parity" --backend cuda --shard "$i/$shards+${FROM:-0}" $(rows_of "$tool") &
        i=$((i + 1))
    done
    # racecheck looks at the shared memory of one kernel: the rows have them all
    [ "$tool" = racecheck ] || one "$tool" step "$build/tests/parity/test_step" --backend cuda &
    wait
    rows=$(cat "$log/$tool".* | grep -c '^\[       OK \]')
    wrong=$(cat "$log/$tool".* | grep -c '^\[  FAILED  \] .*[^)]$')
    errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*RACECHECK SUMMARY: [0-9]* hazard[s]* displayed (\([0-9]*\) error.*/\1/p' "$log/$tool".* | awk '{ n += $1 } END { print n + 0 }')
    reports=$(cat "$log/$tool".* | grep -c '^========= \(Invalid\|Uninitialized\|Error: Race\|Barrier error\|Program hit\)')
    late=$(cat "$log/$tool".* | grep -c '^exit 124')
    died=$(cat "$log/$tool".* | grep '^exit ' | grep -vc '^exit \(0\|1\|9\|124\)$')
    if [ "$errors" -eq 0 ] && [ "$died" -eq 0 ] && [ "$reports" -eq 0 ] && [ "$wrong" -eq 0 ] && [ "$rows" -gt 0 ]; then
        echo "ok $tool: $rows rows clean"
    else
        echo "not ok $tool: $rows rows, $wrong wrong values, $errors errors, $reports reports, $died dead; see $log/$tool.*"
        grep -h '^========= \(Invalid\|Uninitialized\|Error: Race\|Barrier error\|Program hit\|    at \)' "$log/$tool".* |
            sort | uniq -c | sort -rn | head -20
        failed=1
    fi
    [ "$late" -eq 0 ] || echo "skip $tool: $late of $((shards + 1)) processes ran out of their $seconds s"
done
exit $failed
