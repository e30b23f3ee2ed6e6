"""Formulas in plain text, such as "w_ij = f_ij / sum_j f_ij", as marked pieces that a page typesets."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_LETTERS: Final = "alpha beta gamma delta eps theta kappa lambda mu pi rho sigma tau phi psi omega"
GREEK: Final = dict(zip(_LETTERS.split(), "αβγδεθκλμπρστφψω", strict=True))
_SIGNS: Final = {
    "<=>": "⇔",
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "->": "→",
    "...": "…",
    "..": "…",
    "-": "−",
    "*": "·",
    ".": "·",
    "'": "′",
    "sum": "∑",
    "inf": "∞",
}
_FUNCTIONS: Final = (
    *("exp", "ln", "log", "sgn", "max", "min", "mean", "cos", "sin", "tanh", "floor", "sqrt"),
    *("relu", "elu", "softplus", "sigmoid", "softmax", "LSE", "product", "score"),
)
_KNOWN: Final = frozenset((*_FUNCTIONS, *GREEK, *_SIGNS))
_TOKEN: Final = re.compile(r"\s+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|log1p|[A-Za-z]+|<=>|<=|>=|!=|->|\.\.\.?|\*\*|.", re.DOTALL)
_ENGLISH: Final = frozenset(("sum", "max", "min", "mean", "log", "product", "score", "floor", "softmax", "sigmoid"))
"""Names of functions that begin no formula, because sentences have them, too."""
_OPERATORS: Final = ("=", "<", ">", "+", "-", "/", "^", "|")
_VARIABLE: Final = re.compile(
    rf"(?<![A-Za-z\d])(?:{'|'.join(GREEK)}|inf|[A-Za-z])(?![A-Za-z])|[A-Za-z]_\w|\^|\||sqrt\("
)
_NAME: Final = re.compile(r"(?<![_A-Za-z'])[A-Za-z]+")


class Piece(NamedTuple):
    """A text, or pieces, with how it is set."""

    kind: str  # text, variable, sub, sup, root, code, formula, note, line, display or paragraph
    inner: "str | Sequence[Piece]"


def typeset(text: str) -> list[Piece]:
    """Split a description into paragraphs, where two blanks stand around a formula, and displayed formulas.

    Lines that are indented, and single lines such as "w_ij = f_ij / Z_i", are displayed.
    """
    found = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if all(line.startswith("  ") for line in lines) or (len(lines) == 1 and not _is_prose(lines[0].split("  ")[0])):
            found.append(Piece("display", display(lines)))
        else:
            inner: list[Piece] = []
            for part in re.split(r" {2,}", block.replace("\n", " ")):
                inner += [Piece("text", " ")] if inner else []
                inner += inline(part) if _is_prose(part) else _end_run(part)
            found.append(Piece("paragraph", inner))
    return found


def display(lines: Sequence[str]) -> list[Piece]:
    """Each line as a formula and the notes behind it, which three blanks separate."""
    found = []
    for line in lines:
        parts = filter(None, re.split(r" {3,}", line.strip()))
        pieces = [Piece("note", inline(p)) if _is_prose(p) else Piece("formula", formula(p)) for p in parts]
        indent = [Piece("formula", [])] if line.startswith("        ") and pieces[0].kind == "note" else []
        found.append(Piece("line", [*indent, *pieces]))
    return found


def _is_prose(text: str) -> bool:
    """True if at least half of the names are words of no formula."""
    names = _NAME.findall(text)
    return 2 * sum(len(name) > 1 and name not in _KNOWN for name in names) >= max(len(names), 1)


def inline(text: str) -> list[Piece]:
    """Split a sentence into words, formulas, `code` and *variables*."""
    found = []
    for place, part in enumerate(re.split(r"(`[^`]*`|\*\w+\*)", text)):
        if place % 2:
            found.append(Piece("code" if part[0] == "`" else "variable", part.strip("`*")))
        elif part:
            found += _find_formulas(part)
    return found


def _find_formulas(text: str) -> list[Piece]:
    """Split words from formulas: runs of words that consist of variables, numbers, functions and signs."""
    words = re.findall(r"\S+\s*|\s+", text)
    found, run = list[Piece](), ""
    for word, before, after in zip(words, ["", *words], [*words[1:], ""], strict=False):
        begins_as_english = not run and word.strip() in _ENGLISH
        if begins_as_english or not _is_in_formula(word.strip(), before.strip(), after):
            found += [*_end_run(run), Piece("text", word)]
            run = ""
            continue
        run += word
        is_closed = all(run.count(left) <= run.count(right) for left, right in ("()", "[]"))
        if is_closed and word.strip() != "." and word.strip()[-1] in ",;:.":
            found += _end_run(run)
            run = ""
    return found + _end_run(run)


def _is_in_formula(word: str, before: str, after: str) -> bool:
    """True for a word without letters of prose; the letter a is one unless a sign is beside it."""
    bare = re.sub(r"_\w+", "", word).strip("()[],;:.")
    if bare in ("a", "A", "I"):
        return before[-1:] in _OPERATORS or after[:1] in _OPERATORS
    is_prose = not word or re.search(r"[\"“”?!§%&–]|[A-Za-z][.-][A-Za-z]|\w\w's|[A-Z]\d\d", word)
    names = re.findall("[A-Za-z]+", bare)
    return not is_prose and all(len(name) == 1 or name in _KNOWN or name == "log1p" for name in names)


def _end_run(run: str) -> list[Piece]:
    """Set a run of words, without the signs at its ends; one without a variable is text."""
    body = run.lstrip(" \n=<>/.").rstrip(" \n,;:.=<>+/-")
    if not _VARIABLE.search(body):
        return [Piece("text", run)] if run else []
    left, _, right = run.partition(body)
    pieces = [Piece("text", left), Piece("formula", formula(body)), Piece("text", right)]
    return [piece for piece in pieces if piece.inner]


def formula(text: str) -> list[Piece]:
    """Set variables, Greek letters, subscripts, powers and roots of a formula."""
    found, at = list[Piece](), 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        said = token.group() if token else text[at]
        at += len(said)
        if said == "sqrt" and text[at : at + 1] == "(":
            end = _closes(text, at)
            found += [Piece("text", "√"), Piece("root", formula(text[at + 1 : end - 1]))]
            at = end
        elif said in ("_", "^", "**"):
            at += text[at : at + 1] == " " and said == "**"
            end = _operand(text, at)
            found.append(Piece("sub" if said == "_" else "sup", _script(text[at:end])))
            at = end
        elif said == "*" and at >= 2 and text[at - 2].isalpha():  # k* is the name of a learned key
            found.append(Piece("sup", "*"))
        elif said.isdigit() and found and found[-1].kind == "variable":  # v0 is v with the subscript 0
            found.append(Piece("sub", said))
        else:
            found.append(_atom(said, text[at : at + 1]))
    return found


def _atom(said: str, after: str) -> Piece:
    if said in GREEK:
        return Piece("variable", GREEK[said])
    if said == "." and after != " ":  # a product has blanks around it, the end of a sentence has none before it
        return Piece("text", said)
    return Piece("variable" if said.isalpha() and len(said) == 1 else "text", _SIGNS.get(said, said))


def _script(text: str) -> list[Piece]:
    inner = text[1:-1] if text[:1] in ("(", "{") and text[-1] in ")}" else text
    if re.fullmatch("[a-z][a-z0-9]", inner):  # two indices, as in w_ij and w_i0
        return [_atom(each, "") for each in inner]
    return formula(inner)


def _operand(text: str, at: int) -> int:
    """The end of what a subscript or power that begins at `at` holds."""
    if text[at : at + 1] == "-":
        return _operand(text, at + 1)
    if text[at : at + 1] in ("(", "{"):
        return _closes(text, at)
    if text[at : at + 1] == "|":
        return text.find("|", at + 1) + 1 or len(text)
    found = re.compile(r"[A-Za-z0-9]+(?:\.\d+)?").match(text, at)
    return found.end() if found else at


def _closes(text: str, at: int) -> int:
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "({") - (text[place] in ")}")
        if depth == 0:
            return place + 1
    return len(text) + 1  # as if the bracket stood behind the end
