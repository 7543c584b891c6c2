#!/bin/sh
# Runs every test program and tests/*/*.sh, and ends with one line: "N passed, N failed[, N skipped]".
# usage: run.sh BUILD PROGRAM...   A program (with its words: "PROGRAM --backend cuda") prints cmocka's
# summary; a script prints "ok NAME", "not ok NAME" or "skip NAME" lines. SCRIPTS: other scripts than those.
build=$1
shift
passed=0 failed=0 skipped=0
log=$build/test-logs
export DLTRAIN_CACHE="${DLTRAIN_CACHE:-$PWD/$build/test-cache}"
mkdir -p "$log"
count() { grep -c "$1" "$2"; }
for t in "$@" ${SCRIPTS:-tests/golden/*.sh tests/e2e/*.sh tests/cases.sh}; do
    program=${t%% *}
    [ -f "$program" ] || continue
    name=$(echo "$program" | sed "s|^$build/||; s|/|.|g")
    start=$(date +%s)
    BUILD=$build timeout "${TEST_TIMEOUT:-240}" $t >"$log/$name" 2>&1
    rc=$?
    case $program in
    *.sh) p=$(count '^ok ' "$log/$name") f=$(count '^not ok ' "$log/$name") s=$(count '^skip ' "$log/$name") ;;
    *) p=$(count '^\[       OK \]' "$log/$name") f=$(count '^\[  FAILED  \] .*[^)]$' "$log/$name")
       s=$(sed -n 's/^\[  SKIPPED \] \([0-9][0-9]*\) test.*/\1/p' "$log/$name" | awk '{n+=$1} END{print n+0}')
       p=$((p)) f=$(sed -n 's/^\[  FAILED  \] \([0-9][0-9]*\) test.*/\1/p' "$log/$name" | awk '{n+=$1} END{print n+0}') ;;
    esac
    [ $rc -ne 0 ] && [ "$f" -eq 0 ] && f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-44s %5d passed %3d failed %3d skipped  %3ds\n' "$name" "$p" "$f" "$s" $(($(date +%s) - start))
    if [ $rc -ne 0 ] || [ "$f" -ne 0 ]; then
        grep -E 'FAILED|not ok|rror|!=|line ' "$log/$name" | head -40
        echo "--- exit $rc, full log: $log/$name"
    fi
done
if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
