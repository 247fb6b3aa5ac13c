"""The commands that the documentation shows exist, with their options."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from repository import fences, name_of, pages
from typer.main import get_command

from everfill.cli.main import app


def _command_lines(page: Path) -> list[list[str]]:
    """Each `everfill …` line, continued lines joined, split as a shell would."""
    lines = [
        line.strip().removeprefix("$ ")
        for block in fences(page, "sh", "console")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [
        shlex.split(line, comments=True)[1:]
        for line in lines
        if line.startswith("everfill ") and "…" not in line
    ]


def _all() -> list[Any]:
    return [
        pytest.param(words, id=f"{name_of(page)}: {' '.join(words)[:40]}")
        for page in pages()
        for words in _command_lines(page)
    ]


@pytest.mark.parametrize("words", _all())
def test_a_command_in_the_documentation_exists(words: list[str]) -> None:
    command: Any = get_command(app)
    rest = list(words)
    options = _options(command)
    while rest and hasattr(command, "commands"):
        word = rest.pop(0)
        if word.startswith("-"):
            assert word.partition("=")[0] in options, f"no option {word}"
            continue
        assert word in command.commands, f"no command {word!r}; there is: {list(command.commands)}"
        command = command.commands[word]
        options |= _options(command)
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"{command.name} has no option {word}"


def _options(command: Any) -> set[str]:
    names = {name for parameter in command.params for name in parameter.opts}
    names |= {name for parameter in command.params for name in parameter.secondary_opts}
    return names | {"--help"}
