#!/bin/sh
# Branch coverage (gcov) of what reads other people's bytes: configs, checkpoints, data sets.
# usage: coverage.sh [--lines]   --lines also prints every branch that was never taken
# Builds beside the other builds, runs the suites that are about these readers, and prints for every file the
# branches that were taken at least once. The exits of failed allocations count like all others; invariants
# (DLT_BUG_ON) are left out, as what never happens cannot be shown.
set -eu
cd "$(dirname "$0")/.."
flags='OPT=-O0 -g'
extra='EXTRA=-DDLT_FAULTS' # so that tests can make calls fail
san='SAN=--coverage'
build=$(make -s "$flags" "$san" "$extra" CUDA_BUILD=0 --eval 'where: ; @echo $(B)' where)
suites=$(ls tests/unit/test_schema.c tests/unit/test_suggest.c tests/unit/test_registry.c tests/unit/test_expand.c \
    tests/unit/test_yaml*.c tests/unit/test_config*.c tests/unit/test_checkpoint*.c tests/unit/test_data_*.c \
    tests/unit/test_token*.c tests/unit/test_loader*.c tests/unit/test_run*.c tests/unit/test_train.c \
    tests/unit/test_on_bad.c tests/unit/test_bad_*.c tests/unit/test_cases.c tests/unit/test_reader*.c \
    tests/fault/*.c 2>/dev/null | sed "s|^|$build/|; s|\.c\$||")
find "$build" -name '*.gcda' -exec rm -f {} + 2>/dev/null || true
# shellcheck disable=SC2086
make -s -j"$(nproc)" "$flags" "$san" "$extra" CUDA_BUILD=0 "$build/dltrain" "$build/dltrain-dnnl.so" $suites
echo "$suites" | xargs -P "$(nproc)" -I SUITE sh -c 'SUITE >/dev/null 2>&1 || echo "coverage: SUITE failed" >&2'
DLT_FULL=1 DLT_SCENARIO=inspect "$build/tests/fault/test_scenarios" every_call_may_fail >/dev/null 2>&1 ||
    echo "coverage: every fault of inspect failed" >&2
for t in tests/golden/*.sh tests/e2e/report.sh tests/e2e/text.sh tests/e2e/cases.sh; do BUILD=$build "$t" >/dev/null 2>&1 || true; done
report() { # NAME FILE...
    name=$1
    shift
    for f in "$@"; do
        objects=$(find "$build" -path "*/${f%.c}.o")
        for o in $objects; do
            [ -f "${o%.o}.gcda" ] && gcov -b -c -t -o "$o" "$f" 2>/dev/null | awk -v want="$f" '
                /0:Source:/ { split($0, p, ":"); f = p[4] }
                /^ *[-#=0-9*]+: *[0-9]+:/ { never = /DLT_BUG_ON/ }
                f == want && !never && /^branch +[0-9]+ / { n++; taken += !/never executed|taken 0/ }
                END { if (n > 0) print want, 100 * taken / n, n }'
        done
    done | awk -v name="$name" '
        { if (!($1 in n) || $2 > best[$1]) best[$1] = $2; n[$1] = $3 }
        END { for (f in n) { printf "%-34s %6.2f %% of %5d branches\n", f, best[f], n[f] | "sort"; taken += best[f] * n[f] / 100; all += n[f] }
              close("sort"); printf "%-34s %6.2f %% of %5d branches\n", name ":", 100 * taken / all, all }'
}
report "config" core/config/*.c
report "checkpoint" core/exec/checkpoint.c core/exec/safetensors.c
writers='datasets/tokenize.c datasets/shard_write.c datasets/bpe_train.c'
# shellcheck disable=SC2086
report "data readers" $(ls datasets/*.c | grep -vxF "$(printf '%s\n' $writers)")
# shellcheck disable=SC2086
report "tokenize" $writers
if [ "${1:-}" = --lines ]; then
    for f in core/config/*.c core/exec/checkpoint.c core/exec/safetensors.c datasets/*.c; do
        gcov -b -c -t -o "$build/${f%.c}.o" "$f" 2>/dev/null | awk -v want="$f" '
            /0:Source:/ { split($0, p, ":"); f = p[4] }
            /^ *[-#=0-9*]+: *[0-9]+:/ { line = $0; sub(/^ *[-#=0-9*]+: */, "", line) }
            f == want && /^branch +[0-9]+ (never executed|taken 0)/ { split(line, p, ":"); if (p[1] != last) print want ":" line; last = p[1] }'
    done
fi
