"""Markdown tables, lists and escapes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ablate.training.catalogue.explanation import PATHS, Explanation


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table. Links and code in cells stay as they are."""
    lines = [headings, ["---"] * len(headings), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose first column is code."""
    return table(headings, [(f"`{first}`", *rest) for first, *rest in rows])


def write_facts(found: Explanation) -> list[str]:
    """Write the tables and lists of an explanation that are the same on every machine; parts have sections."""
    written = []
    for heading, rows, headings, is_code in found.facts():
        if headings:
            written.append(code_table(headings, rows))
        elif is_code:
            written.append(f"{heading[:1].upper()}{heading[1:]}: {'; '.join(f'`{row}`' for row in rows)}.\n")
        elif heading not in (PATHS, "parts"):
            lines = (f"- {escape(str(row))}" for row in rows)
            written.append("\n".join((f"{heading[:1].upper()}{heading[1:]}:\n", *lines, "")))
    return written


def without_pictures(page: str) -> str:
    """Leave out the pictures that only `make docs` draws: those of operators, probes and tasks."""
    return re.sub(r"!\[.*\]\((operators|probes|tasks)/.*\)\n\n?(Drawn: .*\n\n?)?", "", page)


def escape(text: str) -> str:
    """Escape Markdown signs; in code between backticks only the sign that ends a table cell."""
    parts = text.split("`")
    for at in range(len(parts)):
        for sign in ("|",) if at % 2 else ("*", "|", "<"):
            parts[at] = parts[at].replace(sign, f"\\{sign}")
    return "`".join(parts)


def fill_template(name: str, texts: Mapping[str, str]) -> str:
    """Fill the placeholders of a page template, such as {contents}."""
    page = (Path(__file__).parent / "templates" / f"{name}.md").read_text(encoding="utf-8")
    for key, text in texts.items():
        page = page.replace(f"{{{key}}}", text)
    return page.rstrip("\n") + "\n"
