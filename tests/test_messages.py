"""All error messages of the product, listed in one file: a change of wording is reviewed there.

`python tests/test_messages.py` writes the file anew. Other tests assert the class of an error and the facts it names.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "golden" / "messages.txt"
ROOMS = ("grid", "variants", "runners", "store", "dashboards")


def message(argument: ast.expr) -> str | None:
    """Return the text of a string or f-string, with `{expression}` for each filled part."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    if isinstance(argument, ast.JoinedStr):
        parts = (
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]
            for part in argument.values
        )
        return "".join(map(str, parts))
    return None


def messages() -> Iterator[str]:
    """Yield `module, error class: text` for each error raised with a text."""
    for path in sorted(path for room in ROOMS for path in ROOT.joinpath(room).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        raised = [
            node.exc
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
        ]
        for call in sorted(raised, key=lambda call: call.lineno):
            if (text := message(call.args[0])) is not None:
                yield f"{module}, {ast.unparse(call.func)}: {text!r}"


def test_messages_are_those_of_the_golden_file() -> None:
    assert FILE.read_text(encoding="utf-8").splitlines() == list(messages())


if __name__ == "__main__":
    FILE.write_text("\n".join(messages()) + "\n", encoding="utf-8")
