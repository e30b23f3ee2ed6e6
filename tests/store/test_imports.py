import subprocess
import sys

import pytest

import store

BLOCKED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"duckdb", "polars", "torch", "plotly", "scipy"}:
            raise ImportError(f"{name} is blocked here")

sys.meta_path.insert(0, Refuse())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=False)


def test_a_trials_process_needs_no_database() -> None:
    code = """
import store, store.files.atomic, store.files.layout, store.files.shards, store.files.trial_status
store.Layout, store.ShardBuffer, store.write_shard, store.verify_shard, store.BadShard, store.trial_state
"""
    found = run(code)
    assert found.returncode == 0, found.stderr


def test_the_block_blocks() -> None:
    found = run("import store\nstore.Store")
    assert "duckdb is blocked here" in found.stderr


def test_importing_the_store_imports_nothing_heavy() -> None:
    code = "import sys, store; print(sorted({'pyarrow', 'duckdb', 'polars', 'numpy', 'pydantic'} & set(sys.modules)))"
    assert run(code).stdout == "[]\n"


@pytest.mark.parametrize("name", dir(store))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(store, name).__doc__
