"""The code of a run, and of two line by line: the snapshots of their submissions."""

import ast
import difflib
import tarfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from ablate.dashboards.app.page import Component, SlotContent, html
from ablate.dashboards.data.formatting import count
from ablate.dashboards.data.user_errors import Unknown
from ablate.store import Layout, Store
from ablate.store.files.atomic import read_json

MOST_LINES: Final = 2_000  # lines on the page; the rest is cut
_LARGEST: Final = 512 * 1024  # bytes of a file that is compared
_KINDS: Final = {"+": "added", "-": "taken", "@": "note"}


def compare_code(store: Store, one: str, other: str, names: tuple[str, str]) -> SlotContent:
    """The lines of code that differ between the last attempts of two trials. Raises Unknown if one has no snapshot."""
    tars = [_snapshot(store, key, name) for key, name in zip((one, other), names, strict=True)]
    if tars[0] == tars[1]:
        return SlotContent(message="Both runs were submitted with the same code.")
    before, after = (_texts(store.layout.root, tar) for tar in tars)
    blocks, files = list[Component](), list[tuple[str, int, int]]()
    left = MOST_LINES
    for path in sorted(before.keys() | after.keys(), key=_rank):
        old, new = (each.get(path, "").splitlines() for each in (before, after))
        lines = list(difflib.unified_diff(old, new, lineterm=""))[2:]
        if not lines:
            continue
        signs = [line[0] for line in lines]
        files.append((path, signs.count("+"), signs.count("-")))
        if left > 0:
            shown = [html.Span(f"{line}\n", className=_KINDS.get(line[0], "")) for line in lines[:left]]
            title = f"{path}: {signs.count('+')} added, {signs.count('-')} removed"
            blocks.append(html.Details([html.Summary(title), html.Pre(shown, className="diff")]))
        left -= len(lines)
    if not files:
        return SlotContent(message="The snapshots of these runs have the same lines of Python.")
    data = pl.DataFrame(files, {"file": pl.String, "added": pl.Int64, "removed": pl.Int64}, orient="row")
    added, removed = sum(each[1] for each in files), sum(each[2] for each in files)
    words = f"{count(added, 'line')} added (+) and {removed:,} removed (−)"
    cut = f" The first {MOST_LINES:,} lines are here." if left < 0 else ""
    caption = f"{count(len(files), 'file')}: {words}, from {names[0]} to {names[1]}.{cut}"
    return SlotContent(caption=caption, data=data, parts=[html.Div(blocks, className="scroll tall")])


def show_operator(store: Store, key: str, operator: Mapping[str, Any]) -> SlotContent:
    """The code of an operator's choices, as the last attempt of a trial had it. Raises Unknown without a snapshot."""
    texts = _texts(store.layout.root, _snapshot(store, key, "this run"))
    choices = [(stage, each) for stage, kind in list_choices(operator) for each in find_choice(texts, stage, kind)]
    if not choices:
        return SlotContent(message="The snapshot of this run has no class of these choices.")
    parts: list[Component] = []
    for stage, (path, source) in choices:
        parts.append(html.Details([html.Summary(f"{stage}: {path}"), html.Pre(source)]))
    caption = f"{count(len(choices), 'choice')} of the operator, as they were when this run was submitted."
    data = pl.DataFrame([(stage, *each) for stage, each in choices], schema=["stage", "file", "source"], orient="row")
    return SlotContent(caption=caption, data=data, parts=parts)


def list_choices(operator: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Stage and kind of every choice of an operator that does something."""
    if "kind" in operator:
        return [("mixer", str(operator["kind"]))]
    chosen = ((stage, each.get("kind")) for stage, each in operator.items() if isinstance(each, Mapping))
    return [(stage, str(kind)) for stage, kind in chosen if kind not in (None, "none")]


def find_choice(texts: Mapping[str, str], stage: str, kind: str) -> list[tuple[str, str]]:
    """File and source of the class of a stage with that `kind`; of several, the package's own of that stage."""
    classes = list[tuple[str, str, list[str]]]()
    for path, text in texts.items():
        if f'"{kind}"' in text or f"'{kind}'" in text:
            classes += [(path, *each) for each in _classes_of_kind(text, kind)]
    family = stage.title().replace("_", "")

    def rank(each: tuple[str, str, list[str]]) -> tuple[bool, bool]:
        path, _, bases = each
        is_of_stage = family in bases or PurePath(path).stem.startswith(stage)
        return not is_of_stage, path.startswith("user/")

    return [(path, source) for path, source, _ in sorted(classes, key=rank)[:1]]


def _classes_of_kind(text: str, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Source and base classes of the classes whose field `kind` is that one."""
    try:
        classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    except SyntaxError:  # a file that no run imported
        return
    for node in classes:
        fields = {ast.unparse(field.target): field.value for field in node.body if isinstance(field, ast.AnnAssign)}
        value = fields.get("kind")
        if isinstance(value, ast.Constant) and value.value == kind:
            bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
            yield ast.get_source_segment(text, node) or "", bases


def _rank(path: str) -> tuple[int, str]:
    """The user's own files come first, and the code of this dashboard, which trains nothing, last."""
    return (0 if path.startswith("user/") else 2 if "dashboards/" in path else 1), path


def _snapshot(store: Store, key: str, name: str) -> str:
    last = store.sql("SELECT submission FROM attempt WHERE trial = $key ORDER BY attempt DESC LIMIT 1", {"key": key})
    if last.is_empty():
        raise Unknown(f"{name} has not begun, so that it has no code yet")
    record = read_json(store.layout.submission_record(str(last["submission"][0])))
    tar = (record.get("snapshot") or {}).get("tar")
    if not tar:
        raise Unknown(f"the submission of {name} kept no snapshot of its code")
    return str(tar)


@lru_cache(maxsize=8)
def _texts(root: Path, content: str) -> Mapping[str, str]:
    """The Python files of a snapshot by path. Raises Unknown if it cannot be read."""
    layout, texts = Layout(root), dict[str, str]()
    try:
        with layout.open_inside(layout.snapshot_tar(content)) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                inner = tar.extractfile(member) if member.isreg() and member.size <= _LARGEST else None
                if inner is not None and member.name.endswith(".py"):
                    texts[member.name] = inner.read().decode("utf-8", "replace")
    except (OSError, tarfile.TarError) as error:
        raise Unknown(f"the snapshot {content} cannot be read: {error}") from error
    return MappingProxyType(texts)
