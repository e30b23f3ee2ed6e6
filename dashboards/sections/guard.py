"""Figures of which one may fail, and what stands in its place."""

from collections.abc import Iterable

from dashboards.blocks import Picture, picture
from dashboards.html import tag, text
from dashboards.problems import tried


def state(words: str) -> str:
    """A sentence that stands where something else is expected."""
    return tag("div", tag("p", text(words)), class_="state")


def drawn(title: str, pictures: Iterable[Picture]) -> str:
    """The pictures as HTML; where they cannot be computed, `title` and why."""
    html, problem = tried(lambda: "".join(map(picture, pictures)))
    return tag("div", tag("h3", text(title)) + state(str(problem)), class_="block") if html is None else html
