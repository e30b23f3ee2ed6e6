"""The page SQL answers any reading statement, nothing else, and never for long."""

import math
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dashboard_site import ServeSite, in_this_process
from playwright.sync_api import Page
from polars.testing import assert_frame_equal
from synthetic import write_campaign
from waiting import wait_until

from ablate.dashboards.app.address import read, replace_fields
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.downloads import download
from ablate.dashboards.app.engine import Engine, shown_of
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.sql import EXAMPLES, SQL, SqlAddress
from ablate.dashboards.app.query_runner import AT_ONCE, LIVE_S, QueryAnswer, QueryRunner, SpareProcess, run_in_process
from ablate.dashboards.data.grid_context import campaign_styles
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.figures.chart import (
    MOST_GROUPS,
    MOST_POINTS,
    ChartColumns,
    draw_chart,
    group_styles,
    select_rows,
)
from ablate.grid.errors import SpecError
from ablate.store import Layout, Store
from ablate.store.database.schema_docs import example, relations
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.saved_texts import QUERIES

HEAVY = "SELECT sum(hash(a.range + b.range)) FROM range(100000000) a, range(100000000) b"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sql") / "runs"
    write_campaign(place, operators=("softmax", "SSA"), seeds=range(3), steps=6)
    with Store.open(place) as opened:
        QUERIES.save(opened.layout, "best", "SELECT label FROM grid_trial ORDER BY ALL")
    return place


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with Store.open(root, refresh=False, memory_bytes=128 * 2**20) as opened:
        yield opened


Ask = Callable[..., SlotContent]


@pytest.fixture
def ask(store: Store, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return the content of a slot for a query, without a new process for each."""
    monkeypatch.setattr("ablate.dashboards.app.pages.sql.QUESTIONS", QueryRunner(in_this_process))

    def make(query: str | None, slot: int = 0, /, *, whole: bool = False, **fields: str) -> SlotContent:
        address = SqlAddress(query=query, **fields)  # type: ignore[arg-type]
        return shown_of(SQL.slots[slot], PageView("runs", store, address, campaign_styles(store), None, whole=whole))

    return make


def test_the_table_has_the_rows_of_the_query(ask: Ask) -> None:
    shown = ask("SELECT operator, count(*) AS n FROM grid_trial GROUP BY ALL ORDER BY operator")
    assert shown.data.rows() == [("SSA", 3), ("softmax", 3)]
    assert [column["field"] for column in shown.columns] == ["operator", "n"]


def test_an_error_is_a_sentence_with_the_suggestion_of_the_engine(ask: Ask) -> None:
    shown = ask("SELECT lable FROM grid_trial")
    assert '"label"' in shown.message
    assert "\n" not in shown.message


LEVENSHTEIN = "SELECT levenshtein(repeat('a', 60000), repeat('b', 60000))"


@pytest.mark.parametrize("query", [HEAVY, LEVENSHTEIN], ids=["interruptible", "one call"])
def test_a_query_is_killed_at_its_limit_of_time(query: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen.__init__

    def remember(self: "subprocess.Popen[bytes]", *given: Any, **options: Any) -> None:
        processes.append(self)
        begin(self, *given, **options)

    monkeypatch.setattr("subprocess.Popen.__init__", remember)
    with pytest.raises(Unknown, match=r"^the query was stopped after 1 s, its limit of time; ask for less"):
        run_in_process(store, query, 10, limit_s=1.0)
    assert [process.returncode for process in processes] == [-signal.SIGKILL]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT list(range ORDER BY hash(range)) AS l FROM range(100000000)",
        "SELECT repeat('ab', 1500000000)",
    ],
)
def test_a_query_is_stopped_at_its_limit_of_memory(
    query: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Unknown, match=r"^the query was stopped at its limit of memory: .* 1 GiB of memory; ask"):
        run_in_process(store, query, 10, limit_s=120.0)
    assert list(tmp_path.iterdir()) == []  # nor is what was spilled left


def test_a_process_answers_as_the_store_does(store: Store) -> None:
    query = "SELECT label, seed, 1.10::DECIMAL(30, 2) AS d, [1, NULL] AS l, DATE '2026-02-03' AS t FROM grid_trial"
    assert_frame_equal(run_in_process(store, query, 4).frame, store.sql(query, most=4))
    with pytest.raises(SpecError) as caught:
        store.sql("SELECT lable FROM grid_trial")
    with pytest.raises(SpecError, match=re.escape(str(caught.value))):
        run_in_process(store, "SELECT lable FROM grid_trial", 1)


def test_a_process_waits_for_the_next_query(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SpareProcess() as spare:
        monkeypatch.setattr("ablate.dashboards.app.query_runner.SPARE", spare)
        monkeypatch.setattr("ablate.dashboards.app.query_runner.REST_S", 0.0)
        waits = spare._spare
        assert QueryRunner().answer(store, "SELECT 1 AS one", 1).frame.rows() == [(1,)]
        assert waits is not None
        assert waits.returncode == 0  # it answered, and another one waits
        waits = next_spare(spare)
        waits.kill()  # as the system may
        waits.wait()
        assert QueryRunner().answer(store, "SELECT 2 AS two", 1).frame.rows() == [(2,)]
        last = next_spare(spare)
    assert last.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def next_spare(spare: SpareProcess) -> "subprocess.Popen[bytes]":
    """Return the process that waits, which another thread starts."""
    wait_until(lambda: spare._spare is not None)
    return spare._spare


def test_a_process_cannot_write(store: Store, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run_in_process(store, f"COPY (SELECT 1) TO '{tmp_path}/stolen.csv'", 1)
    assert list(tmp_path.iterdir()) == []


def test_few_queries_run_at_once_and_others_are_answered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.dashboards.app.query_runner.WAIT_S", 0.0)
    begun, go_on = threading.Barrier(AT_ONCE + 1), threading.Event()

    def wait(store: Store, query: str, most: int) -> QueryAnswer:
        if query == "wait":
            begun.wait()
            go_on.wait()
        return QueryAnswer(pl.DataFrame({"one": [1]}), 0.0, datetime.now())

    questions = QueryRunner(wait)
    threads = [threading.Thread(target=questions.answer, args=(store, "wait", n)) for n in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    begun.wait()
    assert store.sql("SELECT count(*) AS n FROM grid_trial")["n"].to_list() == [6]  # any other page
    with pytest.raises(Unknown, match=f"{AT_ONCE} queries of readers are running already"):
        questions.answer(store, "SELECT 1", 1)
    go_on.set()
    for thread in threads:
        thread.join()
    assert questions.answer(store, "SELECT 1", 1).frame.rows() == [(1,)]


@pytest.mark.parametrize(("took_s", "times"), [(LIVE_S / 2, 1), (LIVE_S * 2, 0)])
def test_new_results_ask_again_only_what_is_quick(took_s: float, times: int, root: Path) -> None:
    asked: list[Store] = []

    def answer(store: Store, query: str, most: int) -> QueryAnswer:
        asked.append(store)
        return in_this_process(store, query, most)._replace(took_s=took_s)

    questions = QueryRunner(answer)
    first, second, third = (Store.open(root, refresh=False) for _ in range(3))
    for _ in range(3):  # table, chart and controls of one page
        questions.answer(first, "SELECT 1", 10)
    questions.answer(second, "SELECT 1", 10, is_refresh=True)
    questions.answer(third, "SELECT 1", 10)
    assert [asked.count(store) for store in (first, second, third)] == [1, times, 1]  # a new page gets new results


VALUES = {
    "'nan'::DOUBLE": "NaN",
    "'inf'::DOUBLE": "∞",
    "'-inf'::FLOAT": "\N{MINUS SIGN}∞",
    "(2::HUGEINT ** 100)::HUGEINT": str(2**100),
    "(SELECT sum(i) FROM range(4) t(i))": 6,
    "9007199254740993::BIGINT": "9007199254740993",
    "1.10::DECIMAL(4, 2)": 1.1,
    "1.10::DECIMAL(30, 2)": "1.10",
    "true": "true",
    "NULL": None,
    "DATE '2026-02-03'": "2026-02-03",
    "TIMESTAMP '2026-02-03 04:05:06'": "2026-02-03 04:05:06",
    "TIME '04:05:06'": "04:05:06",
    "[1, NULL, 3]": "[1, null, 3]",
    "[['a'], []]": '[["a"], []]',
    "['nan'::DOUBLE]": '["NaN"]',
    "{'a': 1, 'b': {'c': 'x'}}": '{"a": 1, "b": {"c": "x"}}',
    "'\\x00\\xFF'::BLOB": "00ff",
    "'<script>alert(1)</script>'": "<script>alert(1)</script>",
    "'é%{x}\"'''": "é%{x}\"'",
    "repeat('x', 1000)": "x" * 399 + "…",
    "7": 7,
    "0.25::DOUBLE": 0.25,
}


def test_a_value_of_any_type_is_shown(ask: Ask) -> None:
    for value, written in VALUES.items():
        shown = ask(f"SELECT {value} AS v")
        assert (shown.message, shown.data["v"].to_list()) == ("", [written]), value


@pytest.mark.parametrize("value", ["INTERVAL 1 DAY", "'infinity'::DATE", "'infinity'::TIMESTAMP", "5000000::BIT"])
def test_a_value_that_no_table_holds_is_a_sentence(value: str, ask: Ask) -> None:
    assert "cast it" in ask(f"SELECT {value} AS v").message


def test_a_result_may_be_wide_or_empty(ask: Ask) -> None:
    assert len(ask(f"SELECT {', '.join(f'{i} AS c{i}' for i in range(200))}").columns) == 200
    empty = ask("SELECT label, seed FROM grid_trial WHERE false")
    assert [column["field"] for column in empty.columns] == ["label", "seed"]


def test_long_results_are_cut_on_the_page_and_whole_in_files(ask: Ask) -> None:
    shown = ask("SELECT range AS i FROM range(3000)")
    assert shown.data["i"].to_list() == list(range(1000))
    assert ask("SELECT range AS i FROM range(9000)", whole=True).data.height == 9000
    assert "more than 200,000 rows" in ask("SELECT range FROM range(200001)", whole=True).message


def test_a_download_has_every_row(root: Path) -> None:
    engine = Engine(Campaigns([root]), [SQL])
    found = download(engine, "runs", "sql", "result", "csv", "?query=SELECT+range+AS+i+FROM+range(1500)")
    assert found.get_data(as_text=True).splitlines() == ["i", *map(str, range(1500))]


def test_a_saved_query_opens_by_its_name_and_an_edited_one_leaves_it(ask: Ask, store: Store) -> None:
    assert ask(None, saved="best").data["label"].to_list() == ["SSA"] * 3 + ["softmax"] * 3
    assert "no saved query 'bets'" in ask(None, saved="bets").message
    address = read(SqlAddress, "?saved=best")
    edited = replace_fields(address, {"saved": None, "query": "SELECT 1"})
    assert edited == SqlAddress(query="SELECT 1")
    controls = SQL.controls(PageView("runs", store, address, {}, None))
    assert controls[0].resets == ("saved",)
    assert controls[0].usual == "SELECT label FROM grid_trial ORDER BY ALL"


def test_the_example_of_every_relation_runs(ask: Ask) -> None:
    for relation in relations():
        shown = ask(example(relation))
        # two name a cell or an axis of another campaign
        other = ("SQL: Invalid Input Error: no cell has", "SQL: Invalid Input Error: there is no axis")
        assert shown.columns or shown.message.startswith(other), relation.name


def test_every_example_has_rows_or_none_by_right(ask: Ask) -> None:
    for words, query in EXAMPLES.items():
        shown = ask(query)
        assert shown.columns, words
        assert shown.data.height or words == "Failures by reason"


def test_the_first_example_finds_the_measure_whatever_the_order_of_its_point(tmp_path: Path) -> None:
    root = write_campaign(tmp_path / "runs", operators=("softmax", "SSA"), seeds=range(2), steps=6).root
    path = Layout(root).grid_header("quickstart")
    header = read_json(path)
    given = header["measure"]["point"]
    for point, rows in ((dict(reversed(given.items())), 2), ({}, 0)):  # no coordinate: a measurement without a point
        header["measure"]["point"] = point
        write_json(path, header, durable="nothing")
        with Store.open(root) as opened:
            assert opened.sql(next(iter(EXAMPLES.values()))).height == rows


def test_the_schema_names_every_relation_and_its_columns(ask: Ask) -> None:
    text = str(ask(None, 2).parts[0])
    assert all(each.name in text for each in relations())
    assert "sql?saved=best" in text
    assert "trials_quickstart" in text


FRAME = pl.DataFrame(
    {"step": [2, 1, 1, 2, 3], "loss": [1.0, 2.0, 4.0, math.nan, math.inf], "who": ["a", "a", "b", "b", None]}
)


def test_lines_rise_by_x_and_leave_out_what_is_not_finite() -> None:
    found = select_rows(FRAME, "lines", ChartColumns("step", "loss", "who"))
    assert found.rows() == [(1.0, 2.0, "a"), (2.0, 1.0, "a"), (1.0, 4.0, "b")]
    figure = draw_chart(found, "lines", ChartColumns("step", "loss", "who"), group_styles(found, {}))
    assert [(list(trace.x), list(trace.y), trace.legendgroup) for trace in figure.data] == [
        ([1.0, 2.0], [2.0, 1.0], "a"),
        ([1.0], [4.0], "b"),
    ]


def test_a_chart_says_which_column_it_cannot_draw() -> None:
    with pytest.raises(Unknown, match=r"no column 'lass'; it has step, loss, who"):
        select_rows(FRAME, "lines", ChartColumns("step", "lass"))
    with pytest.raises(Unknown, match=r"'who' has no numbers"):
        select_rows(FRAME, "lines", ChartColumns("step", "who"))


@pytest.mark.parametrize("kind", ["points", "lines", "bars", "heat"])
def test_a_chart_of_many_groups_hostile_names_and_many_rows_is_drawn(kind: str, ask: Ask) -> None:
    query = "SELECT range % 200 || '<script>%{x}\"' AS who, range AS i, range % 20 AS y FROM range(6000)"
    x, y, colour = ("who", "y", "i") if kind == "heat" else ("i", "y", "who")
    shown = ask(query, 1, chart=kind, x=x, y=y, colour=colour)
    assert shown.figure is not None
    assert shown.data.height == MOST_POINTS
    assert "<script>" not in shown.figure.to_json()
    if kind != "heat":
        assert len(shown.legend) == MOST_GROUPS


@pytest.mark.browser
def test_names_of_the_schema_are_completed(page: Page, root: Path, serve_site: ServeSite) -> None:
    with serve_site([root]) as site:
        page.goto(f"{site.url}/runs/sql")
        page.wait_for_selector("#slot-schema details", state="attached")
        text, names = page.locator("textarea.code-text"), page.locator(".completions button")
        text.fill("")
        text.press_sequentially("from grid_tri")
        names.first.wait_for()
        assert names.all_inner_texts()[0] == "grid_trial"
        text.press("Home")  # nothing is offered where nothing is typed
        names.first.wait_for(state="detached")
        text.press("End")
        names.first.wait_for()
        text.press("Tab")
        text.press_sequentially(" select posit")
        names.filter(has_text="position").wait_for()
        assert names.all_inner_texts() == ["position"]  # a column of grid_trial
        names.first.click()
        assert text.input_value() == "from grid_trial select position"
        text.press_sequentially(" qqq")
        names.first.wait_for(state="detached")


@pytest.mark.browser
def test_keys_run_a_query_and_its_columns_can_be_chosen(
    page: Page, root: Path, serve_site: ServeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.dashboards.app.pages.sql.QUESTIONS", QueryRunner(in_this_process))
    with serve_site([root]) as site:
        page.goto(f"{site.url}/runs/sql")
        text = page.locator("textarea.code-text")
        text.fill("select label, seed\nfrom grid_trial")
        text.press("Control+Enter")
        page.wait_for_url("**/sql?query=*")
        page.wait_for_selector("#slot-result .ag-row")
        assert page.url.endswith("?query=select+label,+seed%0Afrom+grid_trial")
        page.wait_for_function("() => document.activeElement.tagName === 'TEXTAREA'")
        page.get_by_text("6 rows, 2 columns").wait_for()
        assert page.locator(".code-paint b").all_inner_texts() == ["select", "from"]
        page.locator("#query-name").fill("Seeds per cell")
        page.locator("#save-query").click()
        page.get_by_text("Saved as seeds-per-cell").wait_for()
        assert QUERIES.text(Layout(root), "seeds-per-cell").startswith("select label, seed")
        page.locator("#saved-queries a").filter(has_text="seeds-per-cell").wait_for()
        assert "6 rows, 2 columns" in page.locator("#slot-result .caption").inner_text()
        assert page.locator(".control").filter(has_text="Colour").count() == 1
        page.goto(f"{site.url}/runs/sql?query=select+lable+from+grid_trial&chart=bars")
        page.wait_for_selector("#slot-result .state")
        assert '"lable" not found' in page.locator("#slot-result .state").inner_text()
