# Two commands for a fresh machine that has python3 (3.11 or newer), make and a network:
#   make demo    fill two example tables and print them
#   make test    run every test that is not marked slow
# Both set up .venv first, from the versions and hashes in requirements/dev.txt, and skip that when
# it is done. Daily work goes through the justfile (.venv/bin/just).

PYTHON ?= python3
STAMP := .venv/.installed

# A person's own pip and uv settings (mirrors, certificates) stay in force; these only keep quiet.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_PYTHON_DOWNLOADS := never
# Without a home folder to write to, downloads are kept beside the environment.
ifneq ($(shell [ -n "$$HOME" ] && [ -w "$$HOME" ] && echo writable),writable)
export UV_CACHE_DIR ?= .venv/cache
export PIP_NO_CACHE_DIR := 1
endif

# An environment that moved, or whose Python is gone, is made anew.
$(shell [ "$$(cat .venv/.folder 2>/dev/null)" = "$$(pwd)" ] \
	&& .venv/bin/python -c '' 2>/dev/null || rm -f $(STAMP))

.PHONY: help setup demo test clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

demo: $(STAMP)
	@sh examples/demo.sh

test: $(STAMP)
	@.venv/bin/python -m pytest

clean:
	rm -rf .venv out

$(STAMP): requirements/dev.txt pyproject.toml Makefile tools/setup
	@PYTHON='$(PYTHON)' sh tools/setup
	@touch $(STAMP)
