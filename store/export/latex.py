r"""LaTeX: any text as text, and tables with the rules of booktabs.

The output needs `\usepackage{booktabs}` and nothing else; it compiles with pdfLaTeX, XeLaTeX and LuaLaTeX.
"""

import unicodedata
from collections.abc import Sequence
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
    "'": "'{}",  # two would become one mark
    "‘": "`{}",
    "’": "'{}",
    "“": "``{}",
    "”": "''{}",
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


def escape(text: str) -> str:
    """`text` as LaTeX that typesets these characters, whatever they are, in one line.

    A character that pdfLaTeX does not know without further packages is written as its number, such as U+4E2D.
    """
    return "".join(map(_escape, text))


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
    r"""Cells, already LaTeX, as a table with rules, and a `\caption` if there is one; `numeric` are to the right."""
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{caption}}}"] if caption else []),
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in numeric)}}}",
        r"\toprule",
        rf"{' & '.join(headings)} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
