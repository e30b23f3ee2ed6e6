"""Campaigns are told apart and reached, whatever their directories are called."""

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from werkzeug.http import parse_options_header

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.server import make_app

PAGES = app_pages()
ODD = ("100%, a#b", 'ünï "q" <i>', "files")


def test_every_directory_has_a_name_of_its_own(tmp_path: Path) -> None:
    roots = [tmp_path / path for path in ("a/b", "c/b", "a-b", "x/a/b-2", "a-b-2", "c/a-b", "c")]
    campaigns = Campaigns(roots)
    assert sorted(campaigns.root(name) for name in campaigns.names) == sorted(roots)
    assert Campaigns([*roots, roots[0]]).names == campaigns.names


def test_a_name_that_is_no_text_still_stands_in_an_address() -> None:
    [name] = Campaigns([Path("/campaigns/x\udcff")]).names
    assert quote(name) == "x%EF%BF%BD"


@pytest.mark.parametrize("name", ODD)
def test_pages_and_files_of_an_odd_name_are_reached(runs: Path, tmp_path: Path, name: str) -> None:
    root = shutil.copytree(runs, tmp_path / name)
    campaigns = Campaigns([root])
    path = f"/{quote(name)}/overview"
    assert Engine(campaigns, PAGES).place(path)[0] == name
    client = make_app(campaigns, PAGES).server.test_client()
    assert b"<title>ablate</title>" in client.get(path).data
    answer = client.get(f"/files{path}/progress.csv")
    assert answer.status_code == 200
    said = answer.headers["Content-Disposition"]
    assert said.isascii()  # as headers travel
    kind, options = parse_options_header(said)
    assert (kind, set(options)) == ("attachment", {"filename"})
    assert options["filename"].endswith("-progress.csv")
    assert not set('"\n<>?#%') & set(options["filename"])
