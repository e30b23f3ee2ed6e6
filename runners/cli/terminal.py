"""The prompt at a terminal: line editing, completion by Tab, and a history that outlasts the sitting."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.errors import EnvironmentProblem
from runners.cli.completion import Vocabulary, completions, vocabulary
from runners.cli.session import Session
from runners.output import say

if TYPE_CHECKING:
    from store.store import Store


def prompt(store: "Store") -> int:
    """Ask until Ctrl-D or .quit; the exit code. Raises EnvironmentProblem where prompt_toolkit is not installed."""
    try:
        from prompt_toolkit import PromptSession
    except ImportError as error:
        raise EnvironmentProblem(
            "the prompt needs the package prompt_toolkit; `pip install prompt_toolkit`, or ask with `ablate sql QUERY`"
        ) from error

    session = Session(store)
    terminal: PromptSession[str] = PromptSession(
        "sql> ",
        multiline=True,
        prompt_continuation="...> ",
        completer=_completer(vocabulary(store)),
        complete_while_typing=False,
        history=_history(),
        key_bindings=_keys(),
    )
    say("one SQL statement, ended by ; or an empty line; .help for more, Ctrl-D leaves")
    while True:
        try:
            if not session.answer(terminal.prompt()):
                return 0
        except KeyboardInterrupt:  # at the prompt: what was typed is dropped
            continue
        except EOFError:
            return 0


def is_whole(text: str) -> bool:
    """Whether Enter after `text` sends it; otherwise it begins a line."""
    from store.files.saved_texts import is_name

    bare = text.strip()
    return not bare or bare.startswith(".") or bare.endswith(";") or text.endswith("\n") or is_name(bare)


def history_file() -> Path:
    """Where the history lies: below the user's directory for state, never in a campaign, which others read."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "ablate" / "sql_history"


def _history() -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        say(f"ablate: no history is kept: {path}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    def enter(event: Any) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    bindings = KeyBindings()
    bindings.add("enter")(enter)
    return bindings


def _completer(words: Vocabulary) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Words(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:  # noqa: ARG002
            for word in completions(document.text_before_cursor, words):
                yield Completion(word.text, start_position=-word.typed, display_meta=word.kind)

    return Words()
