#!/bin/bash
# dltrain diff and report over two short runs.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
dltrain=$(readlink -f "${BUILD:-.}/dltrain")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}
train() { "$dltrain" train "$root/configs/iris.yaml" "train.for=4 epochs" "$@" --quiet >/dev/null 2>&1; }
train --out a && train --out same && train lr=1e-2 "model.patch.0=x" --out never
train lr=1e-2 --out b && train "model=[{dense: 3}]" --out c
[ -f a/last.bin ] && [ -f b/last.bin ] && [ -f c/last.bin ] || echo "not ok the runs that are compared"

# ---- diff
"$dltrain" diff a same >out 2>&1 && [ "$(cat out)" = "0 differences" ]
verdict "diff: the same run twice has no differences" $?
"$dltrain" diff a b >out 2>&1 && grep -qE '^train.optimizer.adamw.lr +0.005 +0.01$' out && grep -qE '^dense.weight +crc32 [0-9a-f]{8} +[0-9a-f]{8}, largest difference [0-9.e-]+$' out
verdict "diff: runs: the setting, and how far tensors are apart" $?
[ "$(tail -1 out)" = "$(($(wc -l <out) - 2)) differences" ]
verdict "diff: counts what it prints" $?
grep -q 'time_s\|samples_per_s' out
[ $? -eq 1 ]
verdict "diff: speed is no difference" $?
"$dltrain" diff a c >out 2>&1 && grep -qE '^dense_2.weight +f32 \[3, 16\] +-$' out && grep -qE '^dense.weight +f32 \[16, 4\] +f32 \[3, 4\]$' out && grep -qE '^model.1.name +tanh +-$' out
verdict "diff: tensors that are missing or of another shape" $?
cp "$root/configs/iris.yaml" respelt.yaml
sed -i "s|../datasets|$root/datasets|; s/5e-3/0.0050/; s/batch: 16/batch: {global: 016}/" respelt.yaml
sed "s|../datasets|$root/datasets|" "$root/configs/iris.yaml" >plain.yaml
"$dltrain" diff plain.yaml respelt.yaml >out 2>&1 && grep -q '^1 difference$' out && grep -q '^name ' out
verdict "diff: configs: other spellings are no difference" $?
"$dltrain" diff plain.yaml a >out 2>&1 && grep -qE '^train.for +[0-9]+ epochs +4 epochs$' out && grep -q 'settings are compared' out
verdict "diff: a config with a run" $?
"$dltrain" diff a nobody >out 2>&1
[ $? -eq 2 ]
verdict "diff: a file that is not there" $?
cp a/last.bin bad.bin && printf 'x' | dd of=bad.bin bs=1 seek=4000 conv=notrunc 2>/dev/null
"$dltrain" diff a bad.bin >out 2>&1
[ $? -eq 4 ]
verdict "diff: a damaged checkpoint is refused" $?

# ---- report
[ "$("$dltrain" report a)" = a/report.html ] && [ -s a/report.html ]
verdict "report: one run's lies in its folder" $?
grep -qiE 'src=|href=|<script|@import|url\(' a/report.html
[ $? -eq 1 ]
verdict "report: the file needs no other" $?
[ "$(grep -o '<figcaption>[a-z0-9_]*' a/report.html | sed 's/.*>//' | tr '\n' ' ')" = "lr loss top1 grad_norm samples_per_s data_wait " ]
verdict "report: a curve for every metric" $?
rows=$(($(wc -l <a/metrics.csv) - 1))
points=$(sed -n '/<figcaption>loss/,/<\/svg>/p' a/report.html | grep -m1 '<polyline' | grep -o '[0-9.]*,[0-9.]*' | wc -l)
[ "$points" -eq "$rows" ]
verdict "report: a short curve has every point" $?
loss=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "test.loss") c = i } END { printf "%.6g", $c }' a/metrics.csv)
grep -qF "<td>$loss</td>" a/report.html && grep -qF "<td>exit 0: done</td>" a/report.html
verdict "report: the table holds the last figures and the end" $?
"$dltrain" report a b c --out all.html >out && grep -qF '<h1>3 runs</h1>' all.html && grep -qF '<tr><th>train.optimizer.adamw.lr</th><td>0.005</td><td>0.01</td><td>0.005</td></tr>' all.html
verdict "report: several runs, and where their settings differ" $?
grep -qF '<th>train.for</th>' all.html
[ $? -eq 1 ]
verdict "report: equal settings are not listed" $?
mkdir '<b>&"' && cp a/*.csv a/*.json a/*.yaml '<b>&"/' && "$dltrain" report '<b>&"' >out && grep -qF '<h1>&lt;b&gt;&amp;&quot;</h1>' '<b>&"/report.html'
verdict "report: names are text, not HTML" $?
cp -r a cut && rm cut/status.json && truncate -s -5 cut/metrics.csv && "$dltrain" report cut >out && grep -q 'no end record' cut/report.html
verdict "report: a killed run says so" $?
"$dltrain" report "$root/configs" >out 2>&1
[ $? -eq 2 ] && grep -q 'resolved.yaml' out
verdict "report: a folder that holds no run" $?
# 5,000 rows: the drawing stays small, and the mean of its points is that of the rows
mkdir long && cp a/*.yaml long/ && awk 'BEGIN { print "step,train.loss"; for (i = 1; i <= 5000; i++) print i "," 1 + i % 7 / 10 }' >long/metrics.csv
"$dltrain" report long >out && points=$(grep -m1 '<polyline' long/report.html | grep -o '[0-9.]*,[0-9.]*' | wc -l) && [ "$points" -le 400 ] && [ "$points" -ge 380 ] && [ "$(wc -c <long/report.html)" -lt 20000 ]
verdict "report: a long curve is drawn by means of neighbours" $?
