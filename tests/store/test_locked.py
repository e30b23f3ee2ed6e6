"""Queries of a store: what they must not do, and answers that are logged, kept, or that no frame can hold."""

import datetime as dt
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import polars as pl
import pytest
from synthetic import Campaign, write_campaign

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.store.analysis.once import once
from ablate.store.database.query_log import logged_queries, with_values
from ablate.store.store import Store

OpenStore = Callable[..., Store]
READ_ONLY = "the store is read-only"
NO_FILES = "file system operations are disabled|does not exist|not in the catalog"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file whose text no query may show, in the directory in which a store spilled once."""
    path = tmp_path / "secret.csv"
    path.write_text("word\nhidden\n", encoding="utf-8")
    return path


def files_below(*roots: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


WRITES = {
    "COPY trial TO '{file}'": READ_ONLY,
    "COPY (FROM trial) TO '{file}' (FORMAT parquet)": READ_ONLY,
    "EXPLAIN ANALYZE COPY trial TO '{file}'": READ_ONLY,
    "EXPLAIN ANALYZE /* SELECT */ COPY trial TO '{file}'": READ_ONLY,
    "EXPLAIN (ANALYZE) COPY trial TO '{file}'": READ_ONLY,
    "WITH gone AS (COPY trial TO '{file}') FROM gone": NO_FILES,
    "FROM query('COPY trial TO ''{file}''')": "single SELECT",
    "EXPORT DATABASE '{file}'": READ_ONLY,
    "ATTACH '{file}' AS other": READ_ONLY,
    "CREATE TABLE mine AS FROM trial": READ_ONLY,
    "CREATE TEMP MACRO mine() AS 1": READ_ONLY,
    "EXPLAIN ANALYZE CREATE TABLE memory.mine (i INT)": READ_ONLY,
    "EXPLAIN ANALYZE DELETE FROM trial": READ_ONLY,
    "WITH gone AS (DELETE FROM trial RETURNING trial) FROM gone": "read-only mode",
    "WITH more AS (INSERT INTO trial FROM trial RETURNING trial) FROM more": "read-only mode",
    "SELECT 1; DROP TABLE trial": "2 SQL statements",
    "PIVOT trial ON status USING count(*)": "several inside",
    "PREPARE p AS DELETE FROM trial": READ_ONLY,
    "CREATE SECRET mine (TYPE s3)": READ_ONLY,
}
READS = {
    "FROM '{file}'": NO_FILES,
    'FROM "{file}"': NO_FILES,
    "FROM read_csv('{file}')": NO_FILES,
    "FROM read_csv(['{file}'])": NO_FILES,
    "FROM sniff_csv('{file}')": NO_FILES,
    "FROM read_text('{file}')": NO_FILES,
    "FROM read_blob('{file}')": NO_FILES,
    "FROM read_json('{file}')": NO_FILES,
    "FROM read_parquet('{file}')": NO_FILES,
    "FROM parquet_metadata('{file}')": NO_FILES,
    "FROM read_duckdb('{file}')": NO_FILES,
    "FROM sqlite_scan('{file}', 'word')": NO_FILES,
    "FROM glob('{folder}/*')": NO_FILES,
    "FROM query('FROM read_text(''{file}'')')": NO_FILES,
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{file}'')'))": NO_FILES,
    "IMPORT DATABASE '{folder}'": READ_ONLY,
    "SELECT getenv('HOME')": "getenv does not exist",
}
CHANGES = {
    "SET memory_limit = '1GB'": READ_ONLY,
    "SET enable_external_access = true": READ_ONLY,
    "EXPLAIN ANALYZE SET threads = 1": READ_ONLY,
    "RESET temp_directory": READ_ONLY,
    "PRAGMA temp_directory = '/'": READ_ONLY,
    "SET VARIABLE x = 1": READ_ONLY,
    "EXPLAIN ANALYZE SET VARIABLE x = 1": READ_ONLY,
    "INSTALL httpfs": READ_ONLY,
    "LOAD httpfs": READ_ONLY,
    "CALL enable_logging()": READ_ONLY,
    "USE memory": READ_ONLY,
    "DETACH memory": READ_ONLY,
    "UPDATE EXTENSIONS": READ_ONLY,
    "EXPLAIN UPDATE EXTENSIONS": f"Parser Error|{READ_ONLY}",  # DuckDB 2.0 parses it
    **dict.fromkeys(
        (
            *(
                "INSERT INTO meta VALUES ('a', 'b')",
                "UPDATE trial SET status = 'ok'",
                "ALTER TABLE trial RENAME TO trials",
            ),
            *("DELETE FROM metric", "DROP TABLE metric", "CREATE TEMP TABLE mine AS SELECT 1", "BEGIN TRANSACTION"),
            *("SET GLOBAL enable_external_access = true", "PRAGMA memory_limit = '100GB'", "CALL pragma_version()"),
            *("FORCE INSTALL httpfs FROM 'http://127.0.0.1:1'", "DETACH store", "CHECKPOINT", "VACUUM"),
        ),
        READ_ONLY,
    ),
}


def test_a_query_only_reads_the_store(shared: Campaign, reading: Store, secret: Path, tmp_path: Path) -> None:
    settings = reading.sql("SELECT name, value FROM duckdb_settings() ORDER BY name").rows()
    before = files_below(tmp_path, shared.root / "store")
    for query, message in {**WRITES, **READS, **CHANGES}.items():
        with pytest.raises(SpecError, match=message) as caught:
            reading.sql(query.format(file=secret, folder=tmp_path))
        assert "hidden" not in str(caught.value)
        assert "\n" not in str(caught.value)
    assert files_below(tmp_path, shared.root / "store") == before
    assert reading.sql("SELECT name, value FROM duckdb_settings() ORDER BY name").rows() == settings
    for name in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_persistent_secrets"):
        assert dict(settings)[name] == "false"
    assert reading.sql("SELECT getvariable('x') AS x")["x"].item() is None
    assert reading.sql("SELECT count(*) AS n FROM duckdb_tables() WHERE database_name <> 'store'")["n"].item() == 0


NOTEBOOK = """
import sys, types
shell = types.SimpleNamespace(config={"IPKernelApp": {}})  # what the engine takes a kernel of Jupyter by
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
from ablate.store import Campaign
print(Campaign(sys.argv[1], refresh=False).sql("SELECT current_setting('enable_progress_bar') AS bar").item())
"""


def test_a_notebook_that_has_no_widgets_for_a_progress_bar_can_ask(shared: Campaign, reading: Store) -> None:
    said = subprocess.run([sys.executable, "-c", NOTEBOOK, shared.root], capture_output=True, text=True, check=False)
    assert said.stdout == "False\n", said.stderr


def test_files_in_the_temporary_directory_are_as_closed_as_any_other(
    shared: Campaign, opened: OpenStore, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = opened(shared.root)
    for query in (f"FROM read_text('{secret}')", f"WITH gone AS (COPY trial TO '{tmp_path}/new.csv') FROM gone"):
        with pytest.raises(SpecError, match="file system operations are disabled"):
            store.sql(query)
    assert [path.name for path in tmp_path.iterdir()] == [secret.name]


class _Counting(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server on loopback that counts what it is asked."""
    _Counting.asked = 0
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Counting)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found.server_address[1]
    found.shutdown()
    found.server_close()


@pytest.mark.parametrize(
    "query", ["FROM 'http://{at}/a.csv'", "FROM read_parquet('http://{at}/a.parquet')", "FROM read_xlsx('http://{at}')"]
)
def test_no_query_reaches_the_network(
    query: str, server: int, shared: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server}")  # an extension would be fetched through it
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server}")
    store = opened(shared.root)
    with pytest.raises(SpecError, match=NO_FILES):
        store.sql(query.format(at=f"127.0.0.1:{server}"))
    assert _Counting.asked == 0


def test_what_does_not_fit_into_memory_is_spilled_to_a_directory_that_goes(
    shared: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: OpenStore
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ablate.store.database.readonly.OFFLINE", {"memory_limit": "40MB", "threads": 1})
    store = opened(shared.root)
    assert list(tmp_path.iterdir()) == []
    query = "SELECT count(DISTINCT h) AS n FROM (SELECT hash(i) AS h FROM range(3000000) t(i))"
    assert store.sql(query)["n"].item() == 3_000_000
    (spill,) = tmp_path.iterdir()
    assert spill.name.startswith("ablate-sql-")
    with pytest.raises(EnvironmentProblem, match=r"SQL: Out of Memory.*; ask for less at once"):
        store.sql("SELECT len(list(i)) AS n FROM range(20000000) t(i)")
    assert store.sql("SELECT 1 AS one")["one"].item() == 1
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_heavy_query_can_be_cancelled_and_the_store_goes_on(reading: Store) -> None:
    said: list[str] = []

    def ask() -> None:
        try:
            reading.sql("SELECT sum(a.i * b.i) FROM range(100000000) a(i), range(100000000) b(i)")
        except SpecError as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():  # an interruption before the query has begun is not heard
        reading._connection.interrupt()
        asking.join(0.05)
    assert said == ["SQL: INTERRUPT Error: Interrupted"]
    assert reading.sql("SELECT 1 AS one")["one"].item() == 1


@pytest.mark.parametrize(
    "query", ["SELECT i FROM range(1000) t(i) ORDER BY i DESC", "FROM range(7)", "EXPLAIN FROM trial"]
)
def test_the_first_rows_of_a_result_are_those_of_all(query: str, reading: Store) -> None:
    whole = reading.sql(query)
    assert reading.sql(query, most=5).rows() == whole.rows()[:5]
    assert reading.sql(query, most=5000).equals(whole)


@pytest.mark.parametrize(
    "value", [None, True, 0, -7, 2**62, 0.1, -1e-300, float("inf"), "it's $name", '"', "ü\n", [1, 2], ["a", "b'"], []]
)
def test_a_statement_with_its_values_written_in_gives_the_same(value: Any) -> None:
    query = (
        'SELECT $x IS NOT DISTINCT FROM $x AS same, $x AS x, \'$x\' AS text, "$x" AS y FROM (SELECT 1 AS "$x") -- $x'
    )
    connection = duckdb.connect()
    expected = connection.execute(query, {"x": value}).fetchall()
    assert connection.execute(with_values(query, {"x": value})).fetchall() == expected
    assert connection.execute(with_values("SELECT $1, $2", [value, "b"])).fetchall() == [(value, "b")]


def test_every_statement_is_noted_once_in_the_thread_that_asks(tmp_path: Path) -> None:
    write_campaign(tmp_path, operators=("softmax",), seeds=range(1))
    with Store.open(tmp_path) as store:
        other = Thread(target=lambda: store.sql("SELECT 3 AS other"))
        with logged_queries() as found:
            store.sql("SELECT $a AS a", {"a": "x"})
            store.sql("SELECT $a AS a", {"a": "x"})
            other.start()
            other.join()
            store.sql("SELECT 2 AS b")
        store.sql("SELECT 4 AS after")
    assert found == ["SELECT 'x' AS a", "SELECT 2 AS b"]


def test_a_result_is_kept_for_its_store_and_arguments_and_an_error_is_not(
    campaign: Campaign, opened: Callable[..., Store]
) -> None:
    asked = list[object]()
    first, second = (opened(campaign.root) for _ in range(2))

    @once
    def find(store: Store, grid: str, *, most: int = 1) -> list[object]:
        asked.append((store, grid, most))
        if grid == "unknown":
            raise KeyError(grid)
        return [grid]

    assert find(first, "a") is find(first, "a") is find(first, grid="a", most=1)
    assert find(second, "a") is not find(first, "a")
    assert find(first, "a", most=2) is not find(first, "b")
    for _ in range(2):
        with pytest.raises(KeyError):
            find(first, "unknown")
    assert [each[1:] for each in asked] == [("a", 1), ("a", 1), ("a", 2), ("b", 1), ("unknown", 1), ("unknown", 1)]


def test_a_frame_that_somebody_changes_is_whole_for_the_next(campaign: Campaign, opened: Callable[..., Store]) -> None:
    store = opened(campaign.root)
    find = once(lambda _: pl.DataFrame({"value": [1.0]}))
    find(store).insert_column(0, pl.Series("other", [2.0]))
    assert find(store).columns == ["value"]


BEYOND = (
    "'infinity'::date",
    "'-infinity'::timestamp",
    "'-infinity'::timestamp_ms",
    "'infinity'::timestamp_ns",
    "'0044-01-01 (BC)'::date",
    "to_timestamp(1.7e12)",
)


@pytest.mark.parametrize("value", BEYOND)
def test_a_date_that_python_does_not_have_is_refused(value: str, reading: Store) -> None:
    with pytest.raises(SpecError, match="the column 'far' has a date outside the years 1 to 9999; cast it"):
        reading.sql(f"SELECT {value} AS far")


def test_the_first_and_the_last_date_of_python_arrive(reading: Store) -> None:
    found = reading.sql(
        "SELECT '0001-01-01'::date, '9999-12-31'::date, '0001-01-01'::timestamp, "
        "'9999-12-31 23:59:59.999999'::timestamp, NULL::date, '2262-04-11'::timestamp_ns"
    )
    last = dt.datetime(2262, 4, 11)
    assert found.rows() == [(dt.date.min, dt.date.max, dt.datetime.min, dt.datetime.max, None, last)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("'1010'::bit", "BIT"),
        ("1::bignum", "BIGNUM"),
        ("'12:00:00+02'::timetz", "TIME WITH TIME ZONE"),
        ("'a'::variant", "VARIANT"),
        ("INTERVAL 1 DAY", "INTERVAL"),
        ("[{'a': '1'::bit}]", "BIT"),
        ("'2026-11-22'::timestamp_s", "TIMESTAMP_S"),
        ("{'a': [NULL::date]}", "DATE"),
    ],
)
def test_a_type_whose_values_would_be_others_is_refused(value: str, kind: str, reading: Store) -> None:
    with pytest.raises(SpecError, match=rf"the column 'x' is of the type .*{kind}.*cast it"):
        reading.sql(f"SELECT {value} AS x")
    assert reading.sql(f"SELECT ({value})::VARCHAR AS x").schema == {"x": pl.String}


def test_a_name_is_no_type(reading: Store) -> None:
    found = reading.sql("SELECT {'BIT': 1} AS a, 'UNION'::ENUM('UNION', 'BIT')::VARCHAR AS b")
    assert found.rows() == [({"BIT": 1}, "UNION")]
    assert reading.sql("SELECT 'UNION'::ENUM('UNION') AS b")["b"].to_list() == ["UNION"]
