"""Ways in which a query could write, read a file, reach the network or change a setting; each is tried."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from synthetic import Campaign

from ablate.grid.errors import EnvironmentProblem, SpecError
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
    "SELECT 1; DROP TABLE trial": "one SQL statement at a time; got 2",
    "PIVOT trial ON status USING count(*)": "one SQL statement at a time",
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
