"""A strict reader of the LaTeX that is written: groups, commands, cells and rows, with nothing left over."""

import re

COMMANDS = {
    *("begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "multicolumn", "textbf", "texttt"),
    *("textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "textasciigrave"),
    *("phantom", "pm", "cdot", "times", "to", "leftarrow", "uparrow", "downarrow", "le", "ge", "ne", "approx"),
    *("infty", "ldots", "surd", "circ"),
}
_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
GREEK = set(_LETTERS.split())
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}$&#^_%~]|[^\\{}$&#^_%~]", re.DOTALL)
SHOWN = {
    "textbackslash": "\\", "textasciicircum": "^", "textasciitilde": "~", "textless": "<", "textgreater": ">",
    "textbar": "|", "textasciigrave": "`", "ldots": "…",
}  # fmt: skip


def tokens(text: str) -> list[str]:
    """Tokens of `text` without comment lines; fails on anything that TeX would read in another way than we mean."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    found = TOKEN.findall(body)
    assert "".join(found) == body
    depth, maths = 0, False
    for token in found:
        assert token not in ("#", "%"), f"a bare {token}"
        assert not re.fullmatch(r"\\[A-Za-z]+", token) or token[1:] in COMMANDS | GREEK, (
            f"{token} is no command of ours"
        )
        depth += (token == "{") - (token == "}")
        assert depth >= 0, "a group ends that did not begin"
        maths ^= token == "$"
        assert token not in "^_" or maths, f"{token} outside of maths"
    assert (depth, maths) == (0, False), "a group does not end"
    return found


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tabular, as LaTeX; a cell that spans several is there as often."""
    tokens(text)
    columns = re.search(r"\\begin\{tabular\}\{(.*)\}$", text, re.MULTILINE)
    assert columns
    width = len(re.sub(r"@\{[^}]*\}", "", columns[1]))
    body = text[columns.end() : text.index(r"\end{tabular}")]
    found = []
    for line in body.strip().splitlines():
        if line in (r"\toprule", r"\midrule", r"\bottomrule"):
            continue
        assert line.endswith(r" \\"), line
        found.append(_cells(line.removesuffix(r" \\")))
        assert len(found[-1]) == width, (width, line)
    return found


def _cells(line: str) -> list[str]:
    cells, depth = [""], 0
    for token in TOKEN.findall(line):
        depth += (token == "{") - (token == "}")
        if token == "&" and depth == 0:
            cells.append("")
        else:
            cells[-1] += token
    spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in cells]
    return [cell.strip() for cell, span in zip(cells, spans, strict=True) for _ in range(int(span[1]) if span else 1)]


def shown(text: str) -> str:
    """The characters that escaped text typesets, for text without maths."""
    plain = re.sub(r"\\(text\w+|ldots)\{\}", lambda found: f"\\{ord(SHOWN[found[1]]):06d}", text)
    plain = re.sub(r"\{([\[\]*])\}", r"\1", plain).replace("-{}", "-").replace("~", "\u00a0")
    plain = re.sub("``|''", '"', plain).replace("`", "'").replace("{}", "")
    plain = re.sub(r"\\([{}$&#%_])", r"\1", plain)
    return re.sub(r"\\(\d{6})", lambda found: chr(int(found[1])), plain)
