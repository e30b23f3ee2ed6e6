"""What a test defines or imports from its spec files: taken away again, so that no other test sees it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runners.provenance.specfile import SPEC_FOLDERS
from variants.papers import catalogue
from variants.stages.stage import Stage


def _families(cls: type = Stage) -> Iterator[type]:
    for each in cls.__subclasses__():
        if "_members" in vars(each):
            yield each
        yield from _families(each)


def _places() -> list[dict[str, Any]]:
    return [family._members for family in _families()] + [catalogue._CATALOGUE]


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget the choices defined inside, and the directories of spec files loaded inside, with their modules."""
    places = _places()
    before, folders, paths = [dict(place) for place in places], list(SPEC_FOLDERS), list(sys.path)
    try:
        yield
    finally:
        for folder in set(SPEC_FOLDERS).difference(folders):
            for name, module in list(sys.modules.items()):
                if Path(getattr(module, "__file__", None) or "/").parent == folder:
                    del sys.modules[name]
        SPEC_FOLDERS[:], sys.path[:] = folders, paths
        for place, content in zip(places, before, strict=True):
            place.clear()
            place.update(content)
