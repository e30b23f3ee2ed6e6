r"""LaTeX: any text as text, and tables with the rules of booktabs.

The output needs `\usepackage{booktabs}` and nothing else; it compiles with pdfLaTeX, XeLaTeX and LuaLaTeX.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",  # two would become an en dash
    "[": "{[}",  # after \\ it would begin an argument
    "]": "{]}",
    "*": "{*}",
    "\u00a0": "~",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "→": r"$\to$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\ne$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "√": r"$\surd$",
    "²": "$^2$",
    "³": "$^3$",
    "°": r"$^\circ$",
}
_GREEK: Final = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
_LETTERS: Final = "ßæøåœłÆØÅŒŁ"
_ACCENTS: Final = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
"""Characters of the oldest font encoding."""
_QUOTES: Final = {"‘": "`", "’": "'", "“": "``", "”": "''"}
_STRAIGHT: Final = {"'": "‘’", '"': "“”"}
"""Opening and closing quotation marks."""
_OPENS_AFTER: Final = frozenset("([{<-–—/|=:;,")
"""Besides blanks and another quotation mark that opens."""


def escape(text: str) -> str:
    """`text` as LaTeX that typesets these characters, whatever they are, in one line.

    Straight quotation marks become those that open and close. A character that pdfLaTeX does not know without further
    packages is written as its number, such as U+4E2D.
    """
    turned = "".join(_set_quotation_marks(text))
    return "".join(
        _escape(character) if character not in _QUOTES else _quotation_mark(before, character, after)
        for before, character, after in zip(f" {turned}", turned, f"{turned[1:]} ", strict=False)
    )


def _set_quotation_marks(text: str) -> Iterator[str]:
    """The characters, those of straight quotation marks as what they are in print."""
    before, opened = " ", False
    for character in text:
        if character in _STRAIGHT:
            inside = opened and before in _STRAIGHT and before != character
            opened = before.isspace() or before in _OPENS_AFTER or inside
            yield _STRAIGHT[character][not opened]
        else:
            yield character
        before = character


def _quotation_mark(before: str, mark: str, after: str) -> str:
    """Kept from what stands beside it: TeX would make one character of both."""
    apart = "{}" if before in "?!" and mark in "‘“" else ""
    return f"{apart}{_QUOTES[mark]}{'{}' if after in _QUOTES else ''}"


def _escape(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _GREEK:
        name = unicodedata.name(character).split()[-1].lower().replace("lamda", "lambda")
        return rf"$\{name.capitalize() if character.isupper() else name}$"
    if character.isspace():
        return " "
    parts = unicodedata.normalize("NFD", character)
    known = parts[0].isascii() and parts[0].isprintable() and all(mark in _ACCENTS for mark in parts[1:])
    return character if known or character in _LETTERS else rf"\texttt{{U+{ord(character):04X}}}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], caption: str = "") -> str:
    """Texts as a table; columns that are `numeric` are to the right."""
    return typeset(
        "".join("r" if right else "l" for right in numeric),
        [" & ".join(map(escape, headings))],
        [" & ".join(map(escape, row)) for row in rows],
        escape(caption),
    )


def typeset(columns: str, heads: Sequence[str], body: Sequence[str], caption: str) -> str:
    r"""Lines of cells, already LaTeX, as a table: rules, and a `\caption` if there is one."""
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{caption}}}"] if caption else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *(rf"{line} \\" for line in heads),
        r"\midrule",
        *(rf"{line} \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
