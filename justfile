# Daily work. Set up once with `make setup`; then `.venv/bin/just` (or a just of your own).

set positional-arguments

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")
export PYRIGHT_PYTHON_IGNORE_WARNINGS := "1"

# List what there is
default:
    @just --list

# Exactly what CI runs: lint, format, types, import contracts, tests
check: lint test

# Lint, format, types and import contracts, without the tests
lint:
    tools/lint

# Put everything in shape
fmt:
    ruff check --fix-only --quiet .
    ruff format --quiet .

# Every test that is not slow: just test -k name
test *args:
    python -m pytest "$@"

# Only the tests that do no I/O
unit *args:
    python -m pytest tests/unit "$@"

# Faults on purpose: killed processes, cut connections, a flushed Redis, and thousands of seeds of the
# simulated engine (slow); a failure prints its seed
chaos *args:
    python -m pytest tests/chaos tests/sim -m "slow or chaos" "$@"

# List the benchmarks, or run one: just bench NAME ARGS
bench *args:
    everfill bench "$@"

# Write requirements/*.txt anew: just lock [--upgrade]
lock *args:
    tools/lock "$@"

# Write the generated pages of docs/reference anew
reference:
    python tools/make_reference.py

# Write the schema that the migrations make
schema:
    .venv/bin/python tools/make_schema.py

# Make the example documents and reviews anew
examples:
    python tools/make_examples.py

# Fill the example tables and print them
demo:
    sh examples/demo.sh
