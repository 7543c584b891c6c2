#!/bin/sh
# Every tests/golden/bad/X.yaml is refused with exactly the words and the exit code of X.txt, at once.
# `bad.sh --update` writes the .txt files anew; read the difference before you commit it.
cd "$(dirname "$0")/../.." || exit 1
dltrain=${BUILD:-.}/dltrain
answer() {
    "$dltrain" check "$1" 2>&1 | sed "s|$(pwd -P)|@|g"
}
for yaml in tests/golden/bad/*.yaml; do
    name=$(basename "$yaml" .yaml)
    want=tests/golden/bad/$name.txt
    "$dltrain" check "$yaml" >/dev/null 2>&1
    code=$?
    { answer "$yaml"; echo "exit $code"; } >"/tmp/dlt-bad.$$"
    if [ "$1" = --update ]; then
        cp "/tmp/dlt-bad.$$" "$want"
    elif cmp -s "/tmp/dlt-bad.$$" "$want"; then
        echo "ok $name"
    else
        echo "not ok $name"
        diff "$want" "/tmp/dlt-bad.$$"
    fi
done
rm -f "/tmp/dlt-bad.$$"
