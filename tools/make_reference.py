"""Write the generated pages of docs/ from the code and the decisions: `just reference`.

`PAGES` gives them as text, so that a test can tell when one is stale.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from state_diagram import state_page, with_diagram

from everfill.cli import exit_codes
from everfill.compute.registry import get_kind, list_kinds
from everfill.kernel.config import Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
GENERATED = "<!-- Written by tools/make_reference.py from the code: change that, not this page. -->"

EXIT_CODES = """\
# Exit codes

{generated}

| code | meaning |
| --- | --- |
{rows}

Where something is wrong, stderr says what, where and what to do. `fill` writes its output also
where some cells failed (code 3), and its summary counts the failures by kind.
"""

CONFIGURATION = """\
# Configuration

{generated}

A value comes from the first place that names it:

1. a flag of the command, such as `--data-dir`
2. the environment: `EVERFILL_SECTION__KEY` (two underscores between section and key)
3. `everfill.toml` in the working directory, or the file that `EVERFILL_CONFIG` names
4. the default

Unknown keys are refused, wherever they stand. `everfill config show` prints every key with its
value and where that came from; secrets are masked.

```toml
data_dir = "/srv/everfill"

[postgres]
url = "postgresql://everfill@db.internal/everfill"

[worker]
slots = 40
```

{tables}"""

KINDS = """\
# Kinds

{generated}

A kind is what fills a computed column; a [recipe](recipes.md) or a `--column` names it. The
filled-in template is its input. An installed package can add kinds of its own through the
entry-point group `everfill.compute`.

Cost says how a worker schedules the kind: *instant* is microseconds of Python, *local* is this
machine's processors, *remote* is waiting for somebody else's server.

{table}"""


DECISIONS = """\
# Decisions

{generated}

Each choice that closes others, titled by a sentence that says it. For a new one copy
[the template](template.md), take the next number, and run `just reference`.

| number | decision |
| --- | --- |
{rows}"""


_TYPE_NAMES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    SecretStr: "secret",
    Path: "path",
}


def configuration_page() -> str:
    """The settings tree, one table a section."""
    sections = {"Top level": [], **{name: [] for name, _ in _sections()}}
    for name, field in Settings.model_fields.items():
        section = _section(field)
        if section is None:
            sections["Top level"].append(_setting("", name, field))
        else:
            sections[name] += _settings(f"{name}.", section)
    head = "| key | environment | type | default | meaning |\n| --- | --- | --- | --- | --- |\n"
    tables = "\n".join(
        f"## {title if title == 'Top level' else f'`[{title}]`'}\n\n{head}{''.join(rows)}"
        for title, rows in sections.items()
    )
    return CONFIGURATION.format(generated=GENERATED, tables=tables)


def kinds_page() -> str:
    """The kinds that ship with Everfill."""
    head = (
        "| kind | what it gives | cost | types | default type |\n| --- | --- | --- | --- | --- |\n"
    )
    return KINDS.format(generated=GENERATED, table=head + "".join(map(_kind, list_kinds())))


def _kind(name: str) -> str:
    spec = get_kind(name).spec
    types = ", ".join(sorted(spec.output_types))
    default = spec.default_type
    choices = f"({','.join(default.choices)})" if default.choices else ""
    cells = (f"`{name}`", spec.summary, spec.cost_class, types, f"`{default.name}{choices}`")
    return f"| {' | '.join(cells)} |\n"


def _sections() -> list[tuple[str, FieldInfo]]:
    return [(name, field) for name, field in Settings.model_fields.items() if _section(field)]


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _settings(prefix: str, section: type[BaseModel]) -> list[str]:
    """A row a leaf; what is kept by names of the user's own has NAME in its key."""
    rows: list[str] = []
    for name, field in section.model_fields.items():
        if get_origin(field.annotation) is not dict:
            rows.append(_setting(prefix, name, field))
            continue
        inner = get_args(field.annotation)[1]
        rows.append(_setting(prefix, f"{name}.NAME", field))
        if _is_section(inner):
            rows += _settings(f"{prefix}{name}.NAME.", inner)
    return rows


def _setting(prefix: str, name: str, field: FieldInfo) -> str:
    key = f"{prefix}{name}"
    variable = "EVERFILL_" + key.upper().replace(".", "__")
    meaning = (field.description or "").replace("|", "\\|")
    cells = (f"`{key}`", f"`{variable}`", _type(field), _default(field), meaning)
    return f"| {' | '.join(cells)} |\n"


def _type(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(bound, name):g}"
        for bound in field.metadata
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        if getattr(bound, name, None) is not None
    ]
    return ", ".join([_type_name(field.annotation), *bounds])


def _type_name(annotation: Any) -> str:
    origin, arms = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        return " or ".join(_type_name(arm) for arm in arms if arm is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(arms)
    if origin is tuple:
        return f"list of {_type_name(arms[0])}"
    if origin is dict:
        return _type_name(arms[1])
    if _is_section(annotation):
        return "section"
    return _TYPE_NAMES.get(annotation, str(annotation))


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the platform's user data folder"
    if field.default in (None, (), {}):
        return "unset"
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def decisions_page() -> str:
    """The index of docs/adr/, by number."""
    rows = [
        f"| {page.name[:4]} | [{_title(page)}]({page.name}) |\n"
        for page in sorted((DOCS / "adr").glob("[0-9]*.md"))
    ]
    return DECISIONS.format(generated=GENERATED, rows="".join(rows))


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def cli_page() -> str:
    """Every command with its usage, arguments and options, as the code knows them."""
    from typer.main import get_command  # noqa: PLC0415 - only where the command line exists

    from everfill.cli.main import app  # noqa: PLC0415 - the same

    parts = ["# Commands\n", GENERATED + "\n", *_commands("everfill", get_command(app))]
    parts.append("Exit codes are in [exit-codes.md](exit-codes.md).\n")
    return "\n".join(parts)


def _commands(path: str, command: Any) -> list[str]:
    parts = [_command(path, command)]
    for name, child in sorted(getattr(command, "commands", {}).items()):
        if not child.hidden:
            parts += _commands(f"{path} {name}", child)
    return parts


def _command(path: str, command: Any) -> str:
    shown = [item for item in command.params if not getattr(item, "hidden", False)]
    arguments = [item for item in shown if item.param_type_name == "argument"]
    options = [item for item in shown if item.param_type_name == "option"]
    usage = " ".join(
        [
            path,
            *(["COMMAND"] if getattr(command, "commands", None) else []),
            *(_argument(item) for item in arguments),
            *(["[OPTIONS]"] if options else []),
        ]
    )
    lines = [f"## `{path}`", "", _plain(command.help or ""), "", "```text", usage, "```", ""]
    if options:
        lines += ["| option | meaning |", "| --- | --- |"]
        lines += [f"| {_option(item)} | {_plain(item.help or '')} |" for item in options]
        lines.append("")
    return "\n".join(lines)


def _argument(item: Any) -> str:
    name = (item.metavar or item.name).upper().strip("[]")
    return name if item.required else f"[{name}]"


def _option(item: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*item.opts, *item.secondary_opts])


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def transitions_page() -> str:
    """docs/reference/transitions.md: what leads from one state of a cell to another."""
    return state_page(GENERATED)


def cell_states_page() -> str:
    """docs/explanation/cell-states.md: written by hand, but for its diagram."""
    page = DOCS / "explanation" / "cell-states.md"
    return with_diagram(page.read_text(encoding="utf-8"))


def exit_codes_page() -> str:
    """docs/reference/exit-codes.md: the codes with the docstrings that stand under them."""
    tree = ast.parse(inspect.getsource(exit_codes))
    (enum,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ExitCode"]
    rows: list[str] = []
    for member, doc in itertools.pairwise(enum.body):
        if isinstance(member, ast.Assign) and isinstance(doc, ast.Expr):
            value, text = ast.literal_eval(member.value), ast.literal_eval(doc.value)
            rows.append(f"| {value} | {text} |")
    return EXIT_CODES.format(generated=GENERATED, rows="\n".join(rows))


PAGES = {
    "adr/README.md": decisions_page,
    "explanation/cell-states.md": cell_states_page,
    "reference/cli.md": cli_page,
    "reference/configuration.md": configuration_page,
    "reference/exit-codes.md": exit_codes_page,
    "reference/transitions.md": transitions_page,
    "reference/kinds.md": kinds_page,
}


def main() -> None:
    """Write every generated page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
