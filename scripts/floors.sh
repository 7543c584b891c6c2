#!/bin/sh
# Checks who includes whom: a file includes headers of its own folder and of lower floors only; rooms of
# floor 3 never see each other; no CUDA name under core/.
set -u
cd "$(dirname "$0")/.."

floor() {
    case $1 in
    base) echo 0 ;;
    config) echo 1 ;;
    graph | ops | api) echo 2 ;;
    layers | train | passes | cpu | datasets | cuda) echo 3 ;;
    spec | plan) echo 4 ;;
    exec) echo 5 ;;
    cmd) echo 6 ;;
    *) echo "" ;;
    esac
}

bad=0
check() { # file, its room
    mine=$(floor "$2")
    for inc in $(sed -n 's/^#include "\([a-z_]*\)\/.*"/\1/p' "$1"); do
        theirs=$(floor "$inc")
        [ -n "$theirs" ] || { echo "$1: includes unknown room '$inc'"; bad=1; continue; }
        [ "$inc" = "$2" ] && continue
        if [ "$theirs" -gt "$mine" ] || { [ "$theirs" -eq "$mine" ] && [ "$mine" -ge 3 ]; }; then
            echo "$1: $2 (floor $mine) includes $inc (floor $theirs)"
            bad=1
        fi
    done
}
for f in $(git ls-files 'core/*.c' 'core/*.h'); do
    room=${f#core/}
    check "$f" "${room%%/*}"
done
for f in $(git ls-files 'datasets/*.c' 'datasets/*.h'); do check "$f" datasets; done
for f in $(git ls-files 'cuda/*.c' 'cuda/*.h' 'cuda/*.cu' 'cuda/*.cuh'); do check "$f" cuda; done
for f in $(git ls-files 'cmd/*.c' 'cmd/*.h'); do check "$f" cmd; done

names=$(git grep -nE '\b(cuda[A-Z]|cublas|cudnn|nccl|MPI_)' -- core | head)
[ -z "$names" ] || { echo "vendor names under core/:"; echo "$names"; bad=1; }
raw=$(git grep -nE '\b(malloc|calloc|realloc|free|fopen|fwrite|fread|clock_gettime|fsync)\(' -- core datasets cmd \
    ':!core/base/sys.c' ':!core/base/err.c' | grep -vE '_(malloc|free)\(|//|\*' | head)
[ -z "$raw" ] || { echo "system calls outside core/base/sys.c:"; echo "$raw"; bad=1; }
for f in $(git ls-files '*.c' '*.h' '*.cu' '*.cuh'); do
    n=$(wc -l <"$f")
    [ "$n" -le 500 ] || { echo "$f: $n lines (500 at most)"; bad=1; }
done
exit $bad
