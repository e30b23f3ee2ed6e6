"""Texts that a campaign keeps under names, a file each, for people to come back to: queries, views of the dashboard."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.suggestions import suggest_name
from ablate.store.files.atomic import disk_errors, is_temporary, write_atomic
from ablate.store.files.layout import Layout

_NAME: Final = re.compile(r"[a-z0-9_-]+")


def is_name(text: str) -> bool:
    """Whether `text` could name a saved text; no reading SQL statement is such a word."""
    return _NAME.fullmatch(text) is not None


class SavedTexts(NamedTuple):
    """One kind of saved texts: `<folder>/<name>.<ending>` in the campaign."""

    folder: str
    ending: str
    noun: str
    how: str  # how to save one, with `{name}` where its name goes

    def every(self, layout: Layout) -> dict[str, str]:
        paths = sorted((layout.root / self.folder).glob(f"*.{self.ending}"))
        kept = [path for path in paths if is_name(path.stem) and not is_temporary(path) and path.is_file()]
        return {path.stem: self._read(layout, path) for path in kept}

    def text(self, layout: Layout, name: str) -> str:
        """The saved text `name`. Raises SpecError: `name` cannot be one; NotFoundError: there is none."""
        path = self._path(layout, name)
        if not path.is_file():
            known = list(self.every(layout))
            listed = f"there are {known}{suggest_name(name, known)}" if known else "there is none yet"
            how = self.how.format(name=name)
            raise NotFoundError(f"the campaign has no saved {self.noun} {name!r}; {listed}: {how}")
        return self._read(layout, path)

    def save(self, layout: Layout, name: str, text: str) -> bool:
        """Keep `text` as `name`; whether that replaced another. Raises SpecError: `name` cannot be one."""
        path = self._path(layout, name)
        replaced = path.is_file() and self._read(layout, path).strip() != text.strip()
        write_atomic(path, f"{text.strip()}\n".encode())
        return replaced

    def _path(self, layout: Layout, name: str) -> Path:
        if not is_name(name):
            raise SpecError(f"{name!r} is no name of a saved {self.noun}; write lower-case letters, digits, _ and -")
        return layout.root / self.folder / f"{name}.{self.ending}"

    def _read(self, layout: Layout, path: Path) -> str:
        try:
            with disk_errors("read", path), layout.open_inside(path) as file:
                return file.read().decode()
        except UnicodeDecodeError as error:
            raise SpecError(f"{path} is not UTF-8 text ({error.reason}); save the {self.noun} again") from error


QUERIES: Final = SavedTexts("queries", "sql", "query", "`ablate sql --save {name} QUERY`")
"""One reading SQL statement each."""

VIEWS: Final = SavedTexts("views", "json", "view", "`Views` at the top of a page of the dashboard saves it")
"""A page of the dashboard with its state each."""
