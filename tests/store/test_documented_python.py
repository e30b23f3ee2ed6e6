"""The snippets of docs/python.md, run one after another as in a notebook."""

import ast
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import write_campaign

DOCS = Path(__file__).parents[2] / "docs"


def test_every_snippet_runs_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_campaign(tmp_path / "campaigns" / "quickstart", seeds=range(3), steps=4, sigma_f=(5,), sigma_x=(1,))
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    shown = [answer for block in blocks for answer in _run(block, names)]
    frames = [answer for answer in shown if isinstance(answer, pl.DataFrame)]
    figures = [answer for answer in shown if type(answer).__name__ == "Figure"]
    assert len(frames) == 8
    assert not any(frame.is_empty() for frame in frames)
    assert [len(figure.data) > 0 for figure in figures] == [True, True]
    (verdict,) = frames[-1].rows(named=True)
    assert (verdict["label"], verdict["verdict"], verdict["pairs"]) == ("fast", "better", 5)


def _run(block: str, names: dict[str, Any]) -> list[Any]:
    """Return the values of the expressions in `block`."""
    shown = []
    for each in ast.parse(block).body:
        if isinstance(each, ast.Expr):
            shown.append(eval(compile(ast.Expression(each.value), "python.md", "eval"), names))
        else:
            exec(compile(ast.Module([each], []), "python.md", "exec"), names)
    return shown
