"""Choices and named operators that a test defines: taken away again, so that no other test sees them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ablate.variants.papers import catalogue
from ablate.variants.stages.stage import Stage


def _families(cls: type = Stage) -> Iterator[type]:
    for each in cls.__subclasses__():
        if "_members" in vars(each):
            yield each
        yield from _families(each)


def _places() -> list[dict[str, Any]]:
    return [family._members for family in _families()] + [catalogue._CATALOGUE]


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget the choices defined inside."""
    places = _places()
    before = [dict(place) for place in places]
    try:
        yield
    finally:
        for place, content in zip(places, before, strict=True):
            place.clear()
            place.update(content)
