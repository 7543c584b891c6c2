#!/bin/sh
# Training speed on the CPU beside PyTorch on the same machine: ratios, round by round.
# usage: scripts/bench_cpu.sh PEERS ROUNDS [mlp] [lenet] [resnet8] [resnet20] [epoch_mlp] [epoch_lenet]
#   PEERS   folder with torch_mlp.py, torch_lenet.py, torch_resnet.py (they print "... median N ...")
#   PYTHON  interpreter with PyTorch (/usr/bin/python3), THREADS (2)
#   BLAS    folder of a libopenblas.so.0 built for OpenMP, the peer's best; without it Debian's package is
#           fetched (apt-get download, unpacked in a temporary folder, not installed)
# A round runs each program once, one after the other; the ratio of a round is what counts, because the
# machine's clock and neighbours change between rounds. Windows: median of each program's own.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 2 ] || { sed -n '2,10s/^# //p' "$0"; exit 2; }
peers=$(cd "$1" && pwd) rounds=$2
shift 2
[ $# -gt 0 ] || set -- mlp lenet resnet8 resnet20 epoch_mlp epoch_lenet
PYTHON=${PYTHON:-/usr/bin/python3} THREADS=${THREADS:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE

if [ -z "${BLAS:-}" ]; then
    (cd "$work" && apt-get download libopenblas0-openmp >/dev/null 2>&1 && dpkg -x libopenblas0-openmp*.deb deb)
    BLAS=$(dirname "$(find "$work/deb" -name 'libopenblas.so.0' | head -1)")
fi

# the peer's best setting: OpenMP BLAS, memory kept, channels last where there are images
peer() {
    MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456 \
        LD_LIBRARY_PATH=$BLAS OMP_NUM_THREADS=$THREADS "$PYTHON" "$peers/torch_$1.py" --threads "$THREADS" $2
}
ours() { # net, steps, window
    "$root/dltrain" train "$root/tests/bench/cpu/$1.yaml" --threads "$THREADS" --out "$work/run" \
        "train.for=$2 steps" "log.every=$3 steps" "eval.every=1000000 steps" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    # the first window warms up
    sed -n 's/.*"samples_per_s": \([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | sed 1d | sort -n >"$work/v"
    awk '{v[NR]=$1} END {print v[int((NR + 1) / 2)]}' "$work/v"
    rm -rf "$work/run"
}
seconds() { # wall time and peak MiB of a command
    start=$(date +%s.%N)
    "$PYTHON" -c 'import os, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, r = os.wait4(p.pid, 0)
print(r.ru_maxrss / 1024, file=open(os.environ["RSS"], "w"))
sys.exit(status != 0)' "$@"
    echo "$start $(date +%s.%N) $(cat "$RSS")" | awk '{printf "%.3f %.0f\n", $2 - $1, $3}'
}
export RSS="$work/rss"

# reads "peer ours" lines, prints the table's row; what: speed (ratio ours/peer) or time (ours/peer too)
row() {
    awk -v name="$1" '{p[NR]=$1; o[NR]=$2; r[NR]=$2/$1}
        function med(a, n,  i, j, t) {for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) {t = a[j]; a[j] = a[j-1]; a[j-1] = t}
            return n % 2 ? a[(n+1)/2] : (a[n/2] + a[n/2+1]) / 2}
        END {m = med(r, NR); printf "%-12s peer %9.2f  dltrain %9.2f  ratio median %.2f  min %.2f  max %.2f  (%d rounds)\n",
             name, med(p, NR), med(o, NR), m, r[1], r[NR], NR}'
}
median_of() { sed -n 's/.* median \([0-9]*\) .*/\1/p'; }

for net in "$@"; do
    : >"$work/rows"
    : >"$work/memory"
    for round in $(seq "$rounds"); do
        case $net in
        mlp) p=$(peer mlp "--steps 100 --repeats 7" | median_of) o=$(ours mlp 460 50) ;;
        lenet) p=$(peer lenet "--steps 5 --repeats 7 --nhwc" | median_of) o=$(ours lenet 60 6) ;;
        resnet8) p=$(peer resnet "--steps 4 --repeats 7 --layers 8 --nhwc" | median_of) o=$(ours resnet8 40 4) ;;
        resnet20) p=$(peer resnet "--steps 2 --repeats 7 --layers 20 --nhwc" | median_of) o=$(ours resnet20 24 2) ;;
        epoch_*)
            model=${net#epoch_} layout=--nhwc
            [ "$model" = mlp ] && layout=
            peer_line=$(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 \
                MALLOC_TOP_PAD_=268435456 LD_LIBRARY_PATH=$BLAS OMP_NUM_THREADS=$THREADS \
                seconds "$PYTHON" "$peers/torch_$model.py" --threads "$THREADS" $layout)
            our_line=$(seconds "$root/dltrain" train "$root/tests/bench/cpu/$model.yaml" --threads "$THREADS" \
                --out "$work/run" "train.for=1 epochs")
            rm -rf "$work/run"
            p=${peer_line% *} o=${our_line% *}
            echo "${peer_line#* } ${our_line#* }" >>"$work/memory"
            ;;
        *) echo "bench_cpu.sh: no benchmark '$net'" >&2; exit 2 ;;
        esac
        echo "$p $o" >>"$work/rows"
    done
    row "$net" <"$work/rows"
    if [ -s "$work/memory" ]; then row "  peak MiB" <"$work/memory"; fi
done
