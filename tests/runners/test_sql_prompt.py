"""The prompt: what an input does, what Tab offers, and a sitting in a real terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from synthetic import write_campaign

from runners.cli import session as sitting
from runners.cli.completion import Vocabulary, completions, vocabulary
from runners.cli.session import Session
from runners.cli.terminal import history_file, is_whole
from store.files.saved_texts import QUERIES
from store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("campaign")
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4, sigma_f=(5,), sigma_x=(1,))
    with Store.open(root) as found:
        yield found


def test_a_result_is_shown_and_an_error_is_one_sentence(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(store)
    assert session.answer("select 41 + 1 as answer;\n")
    assert "42" in capsys.readouterr().out
    for wrong, words in (
        ("selec 1;", "Parser Error"),
        ("drop table trial;", "read-only"),
        (".tabels", "there is no command .tabels"),
        (".schema", ".schema needs a name"),
        (".schema trail", "did you mean 'trial'"),
        (".schema best_ove", "did you mean 'best_over'"),
        (".run nothing", "no saved query 'nothing'"),
        ("nothing;", "no saved query 'nothing'"),
        (".csv a.txt", "written as .csv"),
    ):
        assert session.answer(wrong)
        said = capsys.readouterr()
        assert said.out == ""
        assert words in said.err
        assert said.err.count("\n") == 1
    assert session.answer("")
    assert not session.answer(".quit")


def test_a_long_result_is_cut_and_says_how_much_is_left(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(store)
    session.answer("select i from range(100) t(i)")
    said = capsys.readouterr()
    assert said.out.split() == ["i", *map(str, range(40))]
    assert said.err == "60 more; .csv FILE writes all, LIMIT asks for fewer\n"
    for suffix in ("csv", "parquet", "md", "tex"):
        session.answer(f".csv {tmp_path / 'all'}.{suffix}")
    assert pl.read_csv(tmp_path / "all.csv").equals(pl.read_parquet(tmp_path / "all.parquet"))
    assert pl.read_csv(tmp_path / "all.csv")["i"].to_list() == list(range(100))
    capsys.readouterr()
    monkeypatch.setattr(sitting, "_COUNTED", 90)
    session.answer("select i from range(100) t(i)")
    assert "more than 50 more" in capsys.readouterr().err


@pytest.mark.parametrize("macro", ["best_over", "curve", "final", "last_probe", "paired"])
def test_what_a_macro_takes_and_gives_is_said_as_of_a_table(
    macro: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Session(store).answer(f".schema {macro.upper()}")
    head, *columns = capsys.readouterr().out.splitlines()
    assert re.match(rf"{macro}\(\w+.*\): \w+", head)
    assert "grid" in [line.split()[0] for line in columns]


def test_a_fault_of_the_program_ends_no_sitting(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("first\nsecond")

    monkeypatch.setattr(sitting, "write_table", fail)
    assert Session(store).answer("select 1;")
    said = capsys.readouterr().err
    assert "a bug in ablate: ValueError: first second" in said
    assert said.count("\n") == 1


def test_a_file_below_the_home_directory_may_be_named_with_a_tilde(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    session = Session(store)
    session.answer("select 7 as seven;")
    session.answer(".csv ~/x.csv")
    assert (tmp_path / "home" / "x.csv").read_text() == "seven\n7\n"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_queries_are_saved_and_run_by_name(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(store)
    session.answer(".save mine")
    assert "no query yet" in capsys.readouterr().err
    session.answer("select 7 as seven;")
    session.answer(".save mine")
    assert QUERIES.every(store.layout)["mine"] == "select 7 as seven;\n"
    capsys.readouterr()
    for again in (".run mine", "mine", "mine;"):
        session.answer(again)
        assert capsys.readouterr().out.split() == ["seven", "7"]


def test_tables_and_columns_are_listed(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(store)
    session.answer(".tables")
    assert "v_cell_stats" in capsys.readouterr().out
    session.answer(".schema V_FINAL")
    said = capsys.readouterr().out
    assert "se_items" in said
    assert "DOUBLE" in said
    session.answer(".help")
    assert ".schema NAME" in capsys.readouterr().out


WORDS = Vocabulary({"trial": ["trial", "seed"], "v_final": ["label", "value"]}, ["final"], ["best"])


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("select * from tr", ["trial"]),
        ("SELECT * FROM v_final JOIN ", ["trial", "v_final"]),
        ("select val", ["value"]),
        ("select SEE", ["seed"]),
        ("from v_final select la", ["label"]),
        ("from v_final where se", ["select"]),  # no column of that table
        ("select t.se", []),
        ("select * from trial t where t.se", ["seed"]),
        ("select * from trial as t where t.", ["trial", "seed"]),
        ("select trial.s", ["seed"]),
        ("select fin", ["final"]),
        ("select 1 lim", ["limit"]),
        ("SELECT 1 LIM", ["LIMIT"]),
        (".sc", [".schema"]),
        (".schema v_", ["v_final"]),
        (".run b", ["best"]),
        ("select ☃x", []),
    ],
)
def test_tab_offers_what_fits(before: str, texts: list[str]) -> None:
    found = completions(before, WORDS)
    assert [word.text for word in found] == texts
    assert all(before.lower().endswith(word.text[: word.typed].lower()) for word in found)


def test_the_words_are_those_of_the_store(store: Store) -> None:
    QUERIES.save(store.layout, "kept", "select 1")
    found = vocabulary(store)
    assert found.tables["v_pair"][:3] == ["grid", "cell", "label"]
    assert "grid_trial" in found.tables
    assert "kept" in found.saved
    assert found.macros == ["best_over", "curve", "final", "last_probe", "paired"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [("", True), ("select 1", False), ("select 1;", True), ("select 1\n", True), (".tables", True), ("best", True)],
)
def test_enter_sends_what_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_the_history_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "ablate" / "sql_history"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # to be ignored, says the XDG specification
    monkeypatch.setenv("HOME", "/home/somebody")
    assert history_file() == Path("/home/somebody/.local/state/ablate/sql_history")


class Terminal:
    """A process on a terminal of its own, and what it has said."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "runners", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
            start_new_session=True,
        )
        os.close(slave)
        self.said = ""
        self.heard = 0
        """So much of `said` has been waited for."""

    def until(self, words: str) -> None:
        """Read until it says `words`, after what was waited for before."""
        end = time.monotonic() + 60
        while words not in self.said[self.heard :]:
            assert time.monotonic() < end, self.said
            if select.select([self.master], [], [], 1)[0]:
                self.said += os.read(self.master, 65536).decode(errors="replace")
        self.heard = self.said.index(words, self.heard) + len(words)

    def prompt(self) -> None:
        """Read until it asks anew; what it draws again while one types is no new prompt."""
        self.until("\x1b[?2004h")
        self.until("sql>")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())


def test_a_sitting_in_a_terminal(store: Store, tmp_path: Path) -> None:
    if find_spec("prompt_toolkit") is None:
        assert not os.environ.get("CI"), "prompt_toolkit is not installed"
        pytest.skip("prompt_toolkit is not installed")
    terminal = Terminal("sql", "--campaign", str(store.layout.root), XDG_STATE_HOME=str(tmp_path))
    try:
        terminal.prompt()
        terminal.type("select 41 + 1\r")
        terminal.until("...>")
        terminal.type("as answer;\r")
        terminal.until("42")
        terminal.prompt()
        terminal.type("selec 1;\r")
        terminal.until("Parser Error")
        terminal.prompt()
        terminal.type("select 1 as typed_and_dropped\x03")
        terminal.prompt()
        terminal.type(".schema grid_tr\t")
        terminal.until("ial")
        terminal.type("\r")
        terminal.until("position")
        terminal.prompt()
        terminal.type("select sum(a.i * b.i) from range(100000000) a(i), range(100000000) b(i);\r")
        time.sleep(1.0)  # into the query
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.until("cancelled")
        terminal.prompt()
        terminal.type("\x04")
        assert terminal.process.wait(timeout=60) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
    history = tmp_path / "ablate" / "sql_history"
    assert "as answer;" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0
    assert list(store.layout.root.rglob("*history*")) == []
