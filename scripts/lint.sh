#!/bin/sh
# make lint: format, include floors, clang-tidy, cppcheck, gcc -fanalyzer, undefined vendor symbols.
set -u
cd "$(dirname "$0")/.."
./scripts/setup.sh build test lint || exit 6
bad=0
say() { echo "lint: $*"; }

say format
files=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
# shellcheck disable=SC2086
clang-format --dry-run -Werror $files >/tmp/dlt-format.$$ 2>&1 || { head -20 /tmp/dlt-format.$$; bad=1; }
rm -f /tmp/dlt-format.$$

say floors
./scripts/floors.sh || bad=1

say warnings
make -s -j"$(nproc)" DEV=1 CUDA_BUILD=0 all tests || bad=1

tidy() { # checks beside those of .clang-tidy
    git ls-files 'core/*.c' 'datasets/*.c' 'cmd/*.c' | CHECKS=$1 xargs -P"$(nproc)" -n16 sh -c \
        'clang-tidy --quiet --checks="$CHECKS" "$@" -- -std=c17 -D_GNU_SOURCE -DDLT_VERSION="\"\"" -Icore -I. 2>/dev/null' _ |
        grep -E 'warning:|error:' | sort -u
}
say clang-tidy
found=$(tidy -clang-analyzer-\*)
[ -z "$found" ] || { echo "$found"; bad=1; }
# its analyzer takes minutes and is advice, so only on request: LINT_ADVICE=1 make lint
if [ -n "${LINT_ADVICE:-}" ]; then
    say clang-analyzer
    tidy -bugprone-\*,-cert-\*,-misc-\*,-performance-\*,-readability-\*
fi

say cppcheck
cppcheck -q --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 -Icore -I. \
    --suppress=missingInclude --suppress=missingIncludeSystem -j"$(nproc)" core datasets cmd || bad=1

say analyzer
for f in core/base/*.c core/config/*.c core/exec/safetensors*.c core/exec/checkpoint*.c; do
    [ -f "$f" ] || continue
    gcc -std=c17 -D_GNU_SOURCE -O1 -fanalyzer -Wno-analyzer-too-complex -Werror -Icore -I. -c "$f" -o /dev/null || bad=1
done

say vendor symbols
if nm -u build/*/libdlt.a 2>/dev/null | grep -E ' U (cuda|cublas|cudnn|nccl|MPI_)'; then bad=1; fi
[ $bad -eq 0 ] && say ok
exit $bad
