"""The command line as a person uses it, on a data directory of its own."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent.parent / "plugins"
CASES = Path(__file__).parent.parent / "cases" / "csv"
ONE = "one = test:count: 1 {{word}}"
TWO = "two = test:count: 2 {{one}}"


@dataclass
class Cli:
    """Runs `everfill` in a folder of its own; the servers stay up between commands."""

    folder: Path
    data_dir: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(PLUGINS),
            "COUNTED_CALLS_FILE": str(self.folder / "counted"),
            "COLUMNS": "100",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "everfill", *arguments, "--data-dir", str(self.data_dir)],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, f"{process.returncode}: {out}\n{err}"
        assert "Traceback" not in err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *arguments: str) -> object:
        return json.loads(self.run(*arguments, "--json").stdout)

    def words(self, *words: str, name: str = "words.csv") -> str:
        (self.folder / name).write_text("word\n" + "".join(f"{w}\n" for w in words))
        return name

    def table(self, name: str = "out.csv") -> list[dict[str, str]]:
        with (self.folder / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def calls(self) -> Counter[str]:
        counted = self.folder / "counted"
        return Counter(counted.read_text().splitlines()) if counted.exists() else Counter()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One stack for all tests of this file, held up by a command that waits."""
    folder = tmp_path_factory.mktemp("cli")
    holder = subprocess.Popen(
        [sys.executable, "-m", "everfill", "up", "--data-dir", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EVERFILL_WORKER__PROCESSES": "1", "PYTHONPATH": str(PLUGINS)},
    )
    assert holder.stderr
    while "Everfill is up" not in (line := holder.stderr.readline()):
        assert line, "`everfill up` ended"
    yield folder
    holder.send_signal(signal.SIGINT)
    holder.communicate(timeout=60)


@pytest.fixture
def cli(data_dir: Path, tmp_path: Path) -> Cli:
    return Cli(folder=tmp_path, data_dir=data_dir)


def test_fill_computes_a_chain_and_a_second_run_computes_nothing(cli: Cli) -> None:
    source = cli.words("tea", "rice")
    fill = ("fill", source, "-c", ONE, "-c", TWO, "--out", "out.csv", "--collection", "chain")
    first = cli.run(*fill)
    assert cli.table() == [
        {"word": "tea", "one": "1 tea", "two": "2 1 tea"},
        {"word": "rice", "one": "1 rice", "two": "2 1 rice"},
    ]
    assert "2 rows (2 new)" in first.stderr
    assert first.stdout == ""
    second = cli.run(*fill)
    assert "unchanged since the last import" in second.stderr


def test_a_changed_input_updates_its_rows_and_computes_only_what_changed(cli: Cli) -> None:
    arguments = ("-c", ONE, "--out", "out.csv", "--collection", "changed")
    cli.run("fill", cli.words("a", "b", "c"), *arguments)
    second = cli.run("fill", cli.words("a", "B", "c", "d"), *arguments, "--json")
    told = json.loads(second.stdout)
    assert told["imported"] == {"read": 4, "appended": 1, "changed": 1, "skipped": False}
    assert [row["one"] for row in cli.table()] == ["1 a", "1 B", "1 c", "1 d"]


def test_a_changed_column_recomputes_itself_and_what_reads_it_alone(cli: Cli) -> None:
    source = cli.words("a")
    other = "other = test:count: other {{word}}"
    common = ("fill", source, "--out", "out.csv", "--collection", "recipe")
    cli.run(*common, "-c", ONE, "-c", TWO, "-c", other)
    cli.run(*common, "-c", "one = test:count: uno {{word}}", "-c", TWO, "-c", other)
    assert cli.table() == [
        {"word": "a", "one": "uno a", "two": "2 uno a", "other": "other a"},
    ]


def test_columns_may_be_given_in_any_order(cli: Cli) -> None:
    cli.run(
        "fill", cli.words("x"), "-c", TWO, "-c", ONE, "--out", "out.csv", "--collection", "order"
    )
    assert cli.table()[0]["two"] == "2 1 x"


def test_a_failed_cell_is_told_by_its_kind_and_changes_the_exit_code(cli: Cli) -> None:
    result = cli.run(
        *("fill", cli.words("12", "many"), "-c", "n:number = template: {{word}}"),
        *("--out", "out.csv", "--with-status", "--collection", "failing"),
        code=3,
    )
    assert "1 cell of n, value_invalid" in result.stderr
    assert [row["n.status"] for row in cli.table()] == ["ready", "failed"]
    assert cli.table()[0]["n"] == "12"


def test_a_missing_input_is_no_failure_and_is_told(cli: Cli) -> None:
    (cli.folder / "gaps.csv").write_text("word,other\na,1\n,2\n")
    result = cli.run("fill", "gaps.csv", "-c", ONE, "--out", "out.csv")
    assert "1 cell of one, for word (it is empty)" in result.stderr
    assert [row["one"] for row in cli.table()] == ["1 a", ""]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("fill", "nowhere.csv"), 4, "nowhere.csv"),
        (("fill", "words.csv", "-c", "one = test:count: {{wrod}}"), 2, "Did you mean {{word}}?"),
        (("fill", "words.csv", "-c", "one = tset: {{word}}"), 2, "There is no kind"),
        (("fill", "words.csv", "-c", "one"), 2, "not complete"),
        (("fill", "words.csv", "-c", "n:numbr = template: {{word}}"), 2, "number"),
        (("fill", "words.csv", "--out", "x.docx"), 2, ".csv"),
        (("show", "nothing-of-that-name"), 4, "nothing-of-that-name"),
        (("fill", "ragged.csv"), 2, "3, 4"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    cli: Cli, arguments: tuple[str, ...], code: int, told: str
) -> None:
    cli.words("a")
    (cli.folder / "ragged.csv").write_bytes((CASES / "ragged.csv").read_bytes())
    result = cli.run(*arguments, code=code)
    assert told in result.stderr


def test_a_misspelt_reference_is_refused_before_anything_is_imported(cli: Cli) -> None:
    typo = ("-c", "one = test:count: {{wrod}}", "--collection", "typo")
    cli.run("fill", cli.words("a"), *typo, code=2)
    cli.run("show", "typo", code=4)


def test_bad_rows_are_left_out_where_asked_and_told_by_line(cli: Cli) -> None:
    (cli.folder / "bad.csv").write_bytes((CASES / "ragged.csv").read_bytes())
    result = cli.run("fill", "bad.csv", "--skip-bad-rows", "--out", "out.csv")
    assert "line 3" in result.stderr
    assert "line 4" in result.stderr
    assert cli.table() == [{"a": "1", "b": "2", "c": "3"}, {"a": "10", "b": "11", "c": "12"}]


def test_ctrl_c_stops_cleanly_and_the_same_command_resumes(cli: Cli) -> None:
    source = cli.words(*(f"w{n}" for n in range(400)))
    slow = ("--recipe", "slow.toml", "--out", "out.csv", "--collection", "slow")
    (cli.folder / "slow.toml").write_text(
        '[[column]]\nname = "slow"\nkind = "test:slow"\ntemplate = "{{word}}"\n'
        "options = { seconds = 0.5 }\n"
    )
    process = cli.start("fill", source, *slow, "--slots", "2")  # so that it is still at work
    deadline = time.monotonic() + 60
    while not _ready(cli):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Resume with" in err
    cli.run("fill", source, *slow)
    assert [row["slow"] for row in cli.table()] == [f"w{n}" for n in range(400)]


def _ready(cli: Cli) -> int:
    every = cli.json("status")
    assert isinstance(every, list)
    return sum(c["cells"].get("ready", 0) for c in every if c["collection"] == "default/slow")


def test_rows_cells_and_columns_by_hand(cli: Cli) -> None:
    cli.run("fill", cli.words("tea"), "-c", ONE, "-c", TWO, "--collection", "hand")
    cli.run("row", "add", "hand", "word=rice")
    cli.run("cell", "set", "hand", "1", "one", "mine")
    cli.run("column", "rename", "hand", "word", "drink")
    cli.run("column", "drop", "hand", "drink", "--yes", code=5)
    cli.run("collection", "duplicate", "hand", "copy")
    cli.run("fill", cli.words("tea", name="again.csv"), "--collection", "hand-wait", "-c", ONE)
    deadline = time.monotonic() + 60
    while True:
        status = cli.json("status", "hand")
        assert isinstance(status, dict)
        if not status["unsettled"]:
            break
        assert time.monotonic() < deadline
    rows = cli.json("show", "hand")
    assert isinstance(rows, list)
    assert rows[0]["cells"]["two"]["value"] == "2 mine"
    assert rows[1]["cells"]["two"]["value"] == "2 1 rice"
    cli.run("cell", "reset", "hand", "1", "one")
    cli.run("reprocess", "hand", "--column", "one", "--yes", "--wait")
    rows = cli.json("show", "hand", "1")
    assert isinstance(rows, list)
    assert rows[0]["cells"]["two"]["value"] == "2 1 tea"
    cli.run("row", "delete", "hand", "2", "--yes")
    assert len(cli.run("row", "list", "hand", "--json").stdout.split('"row"')) == 2
    cli.run("collection", "delete", "copy", "--yes")


def test_a_recompute_that_is_waited_for_tells_what_failed_and_leaves_with_it(cli: Cli) -> None:
    (cli.folder / "numbers.toml").write_text(
        '[[column]]\nname = "number"\nkind = "template"\ntype = "number"\ntemplate = "{{word}}"\n'
    )
    source = cli.words("7", "tea")
    cli.run("fill", source, "--recipe", "numbers.toml", "--collection", "numbers", code=3)
    done = cli.run("reprocess", "numbers", "--yes", "--wait", code=3)
    assert "2 cells settled." in done.stderr
    assert "Failed: 1 cell of number, value_invalid" in done.stderr
    again = cli.run("reprocess", "numbers", "--yes", "--wait", "--json", code=3)
    assert json.loads(again.stdout)["failures"][0]["code"] == "value_invalid"
    cli.run("reprocess", "numbers", "--row", "1", "--wait")  # the other row's failure is not its
    cli.run("column", "add", "numbers", "other = template: {{word}}!")
    cli.run("reprocess", "numbers", "--column", "other", "--yes", "--wait")
    assert "There is no row 99." in cli.run("reprocess", "numbers", "--row", "99", code=4).stderr


def test_what_is_filled_at_once_is_not_said_to_be_queued(cli: Cli) -> None:
    cli.run("fill", cli.words("tea", "rice"), "-c", ONE, "--collection", "once")
    done = cli.run("column", "add", "once", "three = template: 3 {{word}}")
    assert done.stderr == "2 cells filled.\n"


def test_an_outside_server_that_does_not_answer_is_told_as_such(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERFILL_POSTGRES__URL", "postgresql://everfill@127.0.0.1:1/nowhere")
    result = cli.run("fill", cli.words("a"), "-c", ONE, code=7)
    assert "Postgres does not answer" in result.stderr
    assert "EVERFILL_POSTGRES__URL" in result.stderr


def test_doctor_and_config_say_what_is(cli: Cli) -> None:
    report = cli.json("doctor")
    assert isinstance(report, dict)
    assert {server["state"] for server in report["servers"]} == {"running"}
    assert report["queue"]["stalled_runs"] == 0
    settings = cli.json("config", "show")
    assert isinstance(settings, list)
    (data_dir,) = [item for item in settings if item["key"] == "data_dir"]
    assert data_dir["source"] == "flag"
