#!/bin/sh
# The cases of cases.txt: each test that shows one must exist, have run and have passed. Behind a whole
# `make test` the logs are there; a test without one is run.
# usage: cases.sh [BUILD]
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-$(dirname "$(readlink -f dltrain)")}}
logs=$build/test-logs
mkdir -p "$logs"
log_of() { # TEST: its log, of now
    case $1 in
    *.sh) file=tests/$1 log=$logs/tests.$(echo "$1" | tr / .) ;;
    *) file=$build/tests/$1 log=$logs/tests.$(echo "$1" | tr / .) ;;
    esac
    [ -x "$file" ] || return 1
    if [ ! -s "$log" ] || [ "$file" -nt "$log" ] || [ "$build/dltrain" -nt "$log" ]; then
        BUILD=$build timeout "${TEST_TIMEOUT:-240}" "$file" >"$log" 2>&1
    fi
}
passed() { # TEST WORDS; 2: a script that does not apply to this build
    log_of "$1" || return 1
    ! grep -q '^ok \|^not ok \|^\[' "$log" && grep -q '^skip ' "$log" && return 2
    case $1 in
    *.sh) grep -q "^ok $2" "$log" && ! grep -q "^not ok $2" "$log" ;;
    *) grep -q "^\[       OK \] $2\$" "$log" ;;
    esac
}
n=0 good=0 skipped=0 case='' wrong=''
finish() {
    [ -n "$case" ] || return 0
    [ $n_test -gt 0 ] || wrong="$wrong no test;"
    if [ -z "$wrong" ] && [ -n "$left_out" ]; then
        echo "skip $case:$left_out"
        skipped=$((skipped + 1))
    elif [ -z "$wrong" ]; then
        echo "ok $case ($n_test tests)"
        good=$((good + 1))
    else
        echo "not ok $case:$wrong"
    fi
}
while IFS= read -r line; do
    case $line in
    '#'* | '') ;;
    C*)
        finish
        case=$line wrong='' left_out='' n_test=0 n=$((n + 1))
        ;;
    *)
        # shellcheck disable=SC2086
        set -- $line
        test=$1
        shift
        n_test=$((n_test + 1))
        passed "$test" "$*"
        case $? in
        0) ;;
        2) left_out="$left_out $test is skipped here;" ;;
        *) wrong="$wrong $test $* did not pass;" ;;
        esac
        ;;
    esac
done <tests/cases.txt
finish
echo "$good of $n, $skipped skipped"
[ $((good + skipped)) -eq $n ] && [ $n -eq 46 ]
