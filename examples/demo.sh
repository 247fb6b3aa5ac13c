#!/bin/sh
# Fill the two example tables and print them: `make demo`. Everything it writes is under out/, its
# servers are its own, and nothing of the person's own settings or data is read or changed.
set -eu
cd "$(dirname "$0")/.."

for name in $(env | sed -n 's/^\(EVERFILL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
export EVERFILL_CONFIG=examples/demo.toml

fill() {
    name=$1
    input=$2
    printf '\n$ everfill fill %s --recipe examples/%s.toml --out out/%s.csv --data-dir out/data\n' \
        "$input" "$name" "$name"
    .venv/bin/everfill fill "$input" --recipe "examples/$name.toml" \
        --out "out/$name.csv" --data-dir out/data
}

mkdir -p out
fill reviews examples/reviews.csv
.venv/bin/python tools/show_csv.py out/reviews.csv --rows 10 id place lang mood keywords
fill documents examples/documents
.venv/bin/python tools/show_csv.py out/documents.csv --rows 20 file about lang gist

cat <<'END'

The whole tables are in out/reviews.csv and out/documents.csv.
Run `make demo` again: it resumes, finds every cell up to date, and computes nothing.
END
