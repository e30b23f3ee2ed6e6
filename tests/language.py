"""Check the mechanical rules of language: `python tests/language.py [PLACE ...]` ends with 1 if one is broken.

Sentences in docstrings, comments and Markdown do not begin with a word of `OPENERS` and have at most `LONGEST` words.
In the product, no function or module is named by a past participle, and no class name is used twice.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
ROOMS: Final = ("grid", "variants", "runners", "training", "store", "dashboards", "papers")
OPENERS: Final = frozenset({"of", "those", "who", "what", "whose"})
LONGEST: Final = 30
PARTICIPLES: Final = re.compile(
    r"[a-z0-9]{3,}ed|asked|beside|come|done|drawn|found|gone|given|heard|held|kept|known|left|lost|"
    r"made|meant|put|said|seen|sent|shown|spent|taken|taught|thrown|told|worn|written"
)
NO_PARTICIPLES: Final = re.compile(r"feed|need|seed|embed|proceed|exceed|succeed|shed|bleed|speed|principled")
PUBLIC: Final = frozenset({"zipped", "changed", "named", "scaled", "published", "finished"})
"""Names that spec files of users call, and a command; they stay."""
_STOP: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(*\[])")
_CODE: Final = re.compile(r"`[^`]*`")


class Breach(NamedTuple):
    """A place where a rule is broken."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.rule}: {self.text[:100]}"


def paragraphs_of_docstring(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line offset, paragraph) of the prose in a docstring or Markdown text, without code and tables."""
    begun, lines, fenced = 0, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""]):
        bare = line.strip()
        fence = bare.startswith(("```", "~~~"))
        fenced ^= fence
        code = fenced or fence or line.startswith("    ") or bare.startswith(("|", "#", ">>>", "<", "!["))
        new = re.match(r"([-*+]|\d+\.) |\w+: |Args:|Returns:|Raises:|Yields:", bare)
        if lines and (not bare or code or new):
            yield begun, " ".join(lines)
            lines = []
        if bare and not code:
            begun = begun if lines else number
            lines.append(re.sub(r"^([-*+]|\d+\.) ", "", bare))


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph at full stops; code spans count as one word."""
    return _STOP.split(_CODE.sub("`code`", paragraph))


def breaches_of_prose(path: Path, line: int, text: str) -> Iterator[Breach]:
    """Yield the sentences of `text`, which begins at `line`, that break a rule."""
    for offset, paragraph in paragraphs_of_docstring(text):
        for sentence in sentences(paragraph):
            words = re.findall(r"\S*[A-Za-z]\S*", sentence)  # numbers and signs are no words
            first = re.sub(r"\W", "", words[0]).lower() if words else ""
            if first in OPENERS and not sentence.rstrip().endswith("?"):
                yield Breach(path, line + offset, "opener", sentence)
            if len(words) > LONGEST:
                yield Breach(path, line + offset, f"{len(words)} words", sentence)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every block of comments."""
    block, begun, last = list[str](), 0, -2
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(noqa|type:|fmt:|!|pragma)", token.string):
            continue
        line = token.start[0]
        beside_code = token.line[: token.start[1]].strip() != ""  # such comments do not go on from line to line
        if block and (beside_code or line != last + 1):
            yield begun, " ".join(block)
            block = []
        begun = begun if block else line
        block.append(re.sub(r"\s*#\s*(noqa|type:).*", "", token.string.lstrip("# ")))
        last = line
    if block:
        yield begun, " ".join(block)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ():
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                first, _, rest = value.value.partition("\n")
                yield statement.lineno, first.strip() + "\n" + _dedent(rest)


def _dedent(text: str) -> str:
    lines = text.splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines)


def is_participle(name: str) -> bool:
    """Return True if a name is one past participle."""
    bare = name.strip("_")
    return bool(PARTICIPLES.fullmatch(bare)) and not (bare in PUBLIC or NO_PARTICIPLES.fullmatch(bare))


def breaches_of_names(path: Path, tree: ast.Module) -> Iterator[Breach]:
    """Yield modules and functions that are named by a participle; properties and overridden methods may be."""
    if is_participle(path.stem) and f'Literal["{path.stem}"]' not in path.read_text(encoding="utf-8"):  # not a kind
        yield Breach(path, 1, "module named by a participle", path.stem)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not is_participle(node.name):
            continue
        decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
        if not re.search(r"property|override|validator|overload|fixture", decorators):
            yield Breach(path, node.lineno, "function named by a participle", node.name)


def breaches_of_source(path: Path) -> Iterator[Breach]:
    """Yield what a Python file breaks."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    for line, prose in (*docstrings(tree), *comments(text)):
        yield from breaches_of_prose(path, line, prose)
    if any(path.is_relative_to(ROOT / room) for room in ROOMS):
        yield from breaches_of_names(path, tree)


def repeated_classes() -> Iterator[Breach]:
    """Yield every class of the product whose name another class has."""
    places = defaultdict(list)
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield from (Breach(path, line, "class name used twice", name) for path, line in found)


def files(places: list[Path]) -> Iterator[Path]:
    """Yield the Python and Markdown files at or below `places`."""
    for place in places:
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (path for path in found if path.suffix in (".py", ".md"))


def breaches(places: list[Path]) -> Iterator[Breach]:
    """Yield what the files at or below `places` break."""
    for path in files(places):
        if path.suffix == ".md":
            yield from breaches_of_prose(path, 1, path.read_text(encoding="utf-8"))
        else:
            yield from breaches_of_source(path)


def main(arguments: list[str]) -> int:
    """Print every breach; 1 if there is one."""
    everything = [ROOT / name for name in (*ROOMS, "tests", "benchmarks", "specs", "docs", "README.md", "CHANGELOG.md")]
    found = [*breaches([Path(each).resolve() for each in arguments] or everything), *repeated_classes()]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
