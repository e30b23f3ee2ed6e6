"""Markdown of the generated pages, and how their files are written."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are text that Markdown leaves as it is, but for links and code."""
    lines = [headings, ["---"] * len(headings), *([safe(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def listed(heading: str, lines: Sequence[str]) -> list[str]:
    """A heading and a list below it; nothing where there are no lines."""
    return ["\n".join((f"{heading}:\n", *(f"- {safe(line)}" for line in lines), ""))] if lines else []


def safe(text: str) -> str:
    """Text that Markdown leaves as it is; of code between backticks, what ends a cell of a table."""
    parts = text.split("`")
    for at in range(len(parts)):
        for sign in ("|",) if at % 2 else ("*", "|", "<"):
            parts[at] = parts[at].replace(sign, f"\\{sign}")
    return "`".join(parts)


def write_files(docs: Path, folder: str, files: Mapping[str, str]) -> int:
    """Write every file below `docs` and remove pictures in `folder` that are gone; how many files there are."""
    (docs / folder).mkdir(parents=True, exist_ok=True)
    for path in (docs / folder).glob("*.svg"):
        if f"{folder}/{path.name}" not in files:
            path.unlink()
    for name, text in files.items():
        (docs / name).write_text(text, encoding="utf-8")
    return len(files)
