"""Where the browser tests find a browser, and when they may not go without."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Find = Callable[[Mapping[str, str]], str | None]


def test_a_missing_browser_is_a_reason_to_skip_on_a_desk_and_to_fail_in_ci(find_chromium: Find, tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path)}
    assert find_chromium(empty) is None
    with pytest.raises(RuntimeError, match="BROWSER_PATH"):
        find_chromium(empty | {"CI": "1"})


def test_a_named_browser_comes_before_the_one_on_the_path(find_chromium: Find, tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_chromium({"PATH": str(tmp_path)}) == str(program)
    assert find_chromium({"PATH": str(tmp_path), "BROWSER_PATH": "/opt/chrome"}) == "/opt/chrome"
