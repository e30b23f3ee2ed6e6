"""Every finding in docs/findings.md has a check, and it holds."""

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parent.parent / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
CHECKED = {title: re.findall(r"```python\n(.*?)```", body, re.DOTALL) for title, body in SECTIONS.items()}
UNCHECKED = {"What is not mathematics"}


@pytest.mark.parametrize("title", [title for title in CHECKED if title not in UNCHECKED])
def test_a_finding_holds(title: str) -> None:
    (code,) = CHECKED[title]
    assert "assert" in code
    torch.manual_seed(0)
    exec(compile(code, f"docs/findings.md: {title}", "exec"), {})


def test_what_cannot_be_checked_says_so() -> None:
    assert {title for title, code in CHECKED.items() if not code} == UNCHECKED


def test_a_check_can_fail() -> None:
    code = CHECKED["002: Integral attention on logits is softmax at temperature sqrt(S)"][0]
    with pytest.raises(AssertionError):
        exec(code.replace("signals**0.5", "signals"), {})
