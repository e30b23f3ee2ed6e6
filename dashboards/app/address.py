"""The state of a page as its query string, and saved views: such states under a name."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, get_origin
from urllib.parse import parse_qs, urlencode
from zlib import crc32

from pydantic import BaseModel, ConfigDict, ValidationError

from ablate.dashboards.data.user_errors import Unknown, require
from ablate.store import Layout
from ablate.store.files.saved_texts import VIEWS, is_name

LONGEST: Final = 4000  # characters of a query string; browsers and proxies cut longer ones
LONGEST_NAME: Final = 100  # characters of the name of a view
MOVED: Final = {"tradeoffs": "compare", "trade-offs": "compare", "attention": "mechanism", "diff": "run"}
"""Pages of before -> the page that has taken over their fields and slots."""


class Address(BaseModel):
    """A page's choices; each field is a parameter of the query string, and defaults are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    former: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Fields of older addresses, which are left out: with one of these values, or with any if there are none."""

    grid: str | None = None  # None is the campaign's first
    hide: tuple[str, ...] = ()  # names in legends whose lines are not shown


A = TypeVar("A", bound=Address)


def read(kind: type[A], search: str) -> A:
    """The state of a query string such as "?metric=loss&by=operator". Raises Unknown for what is not of the page."""
    if len(search) > LONGEST:
        raise Unknown(f"the address has {len(search)} characters after its `?`; write at most {LONGEST}")
    values: dict[str, Any] = {}
    for name, texts in parse_qs(search.removeprefix("?"), keep_blank_values=True).items():
        if name in kind.former and (not kind.former[name] or texts[0] in kind.former[name]):
            continue
        several = _is_several(kind, require("the address of this page", "field", name, kind.model_fields))
        if len(texts) > 1 and not several:
            raise Unknown(f"{name!r} is {len(texts)} times in the address; keep one")
        values[name] = tuple(text for text in texts if text) if several else texts[0]
    return _validate(kind, values)


def _validate(kind: type[A], values: Mapping[str, Any]) -> A:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise Unknown(f"in the address {name}={values[name]!r}: {first['msg'].removeprefix('Input ')}") from error


def replace_fields(address: A, values: Mapping[str, Any]) -> A:
    """The state with some fields replaced by what controls say: None and "" are the default. Raises Unknown.

    "numbers:beta" is the entry "beta=..." of the field `numbers`.
    """
    whole = {name: value for name, value in values.items() if ":" not in name}
    for name in {name.partition(":")[0] for name in values.keys() - whole.keys()}:
        said = {key.partition(":")[2]: value for key, value in values.items() if key.startswith(f"{name}:")}
        merged = entries(getattr(address, name)) | said
        whole[name] = tuple(f"{key}={_text(value)}" for key, value in merged.items() if value not in (None, ""))
    changed = {name: _coerce(type(address), name, value) for name, value in whole.items() if value not in (None, "")}
    kept = {name: value for name, value in address.model_dump(exclude_defaults=True).items() if name not in whole}
    state = _validate(type(address), kept | changed)
    if len(write_query(state)) > LONGEST:
        raise Unknown(f"the choice does not fit into an address of at most {LONGEST} characters; choose less")
    return state


def entries(listed: Sequence[str]) -> dict[str, str]:
    """The entries "name=value" of a field, by name. Raises Unknown."""
    for each in listed:
        if "=" not in each:
            raise Unknown(f"the address says {each!r} where it takes name=value")
    return dict(each.split("=", 1) for each in listed)


def _coerce(kind: type[Address], name: str, value: Any) -> Any:
    """A value of a control in the form of its field: one of a list of one, or a list of one."""
    several = _is_several(kind, name)
    if isinstance(value, tuple) and not several:
        return value[0]
    return (str(value),) if several and not isinstance(value, tuple) else value


def _is_several(kind: type[Address], name: str) -> bool:
    return get_origin(kind.model_fields[name].annotation) is tuple


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        value = value[0]
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_query(address: Address) -> str:
    """The query string that `read` reads; empty for defaults."""
    pairs: list[tuple[str, str]] = []
    for name, value in address.model_dump(exclude_defaults=True).items():
        if isinstance(value, tuple):
            pairs += [(name, str(each)) for each in value] or [(name, "")]
        else:
            pairs.append((name, str(int(value)) if isinstance(value, bool) else str(value)))
    return f"?{urlencode(pairs, safe='*:,/')}" if pairs else ""


def saved_views(root: Path) -> list[tuple[str, str]]:
    """Name and page of every saved view. Raises as `Shelf.every`; Unknown where one is no view."""
    read = ((file, _read_view(file, text)) for file, text in VIEWS.every(Layout(root)).items())
    return sorted((view.name or file, view.page) for file, view in read)


def resolve_view(root: Path, page: str, search: str) -> str:
    """The query string that `search` stands for: "?view=NAME" that of a saved view, anything else itself.

    Raises as `Shelf.text`; Unknown where the view is another page's.
    """
    query = parse_qs(search.removeprefix("?"), keep_blank_values=True)
    if "view" not in query:
        return search
    if query.keys() != {"view"} or len(query["view"]) != 1:
        raise Unknown("`view` is not alone in the address; leave the rest out: a saved view holds the whole page")
    name = query["view"][0]
    saved = _read_view(name, VIEWS.text(Layout(root), _file_of(name)))
    if saved.page != page:
        raise Unknown(f"the view {name!r} is one of the page {saved.page!r}")
    return saved.search


def save(root: Path, name: str, page: str, search: str) -> bool:
    """Keep a page with its state; whether that replaced another. Raises as `Shelf.save`."""
    if not name.strip() or len(name) > LONGEST_NAME:
        raise Unknown(f"the name of the view has {len(name.strip())} characters; give it 1 to {LONGEST_NAME}")
    view = _SavedView(page=page, search=search, name=name.strip())
    return VIEWS.save(Layout(root), _file_of(name), view.model_dump_json())


def _file_of(name: str) -> str:
    """The name of the file of a view: its own if that is a plain word, else one that is made of it."""
    name = name.strip()
    if is_name(name):
        return name
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{words}-{crc32(name.encode()):08x}".lstrip("-")


class _SavedView(BaseModel):
    page: str
    search: str
    name: str = ""  # empty: that of its file


def _read_view(name: str, text: str) -> _SavedView:
    try:
        view = _SavedView.model_validate_json(text)
    except ValidationError as error:
        raise Unknown(f"views/{name}.json is no saved view; save it again or delete it") from error
    return view.model_copy(update={"page": MOVED.get(view.page, view.page)})
