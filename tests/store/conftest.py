"""Campaigns and ways to break them."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Campaign, write_campaign

from ablate.store.files.layout import Layout
from ablate.store.store import Store


def small_campaign(root: Path) -> Campaign:
    """A small campaign with every kind of trial."""
    return write_campaign(
        root,
        operators=("softmax", "SSA"),
        factors={"width": (8, 16)},
        seeds=range(3),
        failed={("SSA · 8", 1): "diverged", ("SSA · 16", 2): "error"},
        pending=[("softmax · 16", 2)],
        running=[("softmax · 8", 2)],
        resumed=[("softmax · 16", 0)],
        steps=12,
        sigma_f=(1, 5),
        sigma_x=(1,),
    )


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign as its workers left it, which nobody has opened."""
    return small_campaign(tmp_path_factory.mktemp("written") / "campaign")


@pytest.fixture
def campaign(written: Campaign, tmp_path: Path) -> Campaign:
    """A campaign of this test alone, to be changed as it likes."""
    root = Path(shutil.copytree(written.root, tmp_path / "campaign"))
    return replace(written, root=root, layout=Layout(root))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The same campaign for all tests that only read."""
    return small_campaign(tmp_path_factory.mktemp("shared") / "campaign")


@pytest.fixture(scope="session")
def reading(shared: Campaign) -> Iterator[Store]:
    """The store of the shared campaign."""
    with Store.open(shared.root) as store:
        yield store


@pytest.fixture
def opened() -> Iterator[Callable[..., Store]]:
    """`Store.open`, closed at the end of the test."""
    stores: list[Store] = []

    def open_store(root: Path, *, refresh: bool = True) -> Store:
        stores.append(Store.open(root, refresh=refresh))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs `code` with `arguments` in sys.argv[1:]."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start`, killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
        started.append(start(code, *arguments))
        return started[-1]

    yield begin
    for found in started:
        found.kill()
        found.communicate()
