"""One sitting at the prompt: what each input does. It prints; who reads the keyboard is another matter."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from grid.errors import AblateError, NotFoundError, SpecError
from grid.suggestions import suggest_name
from runners.cli.cancellable import cancellable
from runners.cli.completion import COMMANDS
from runners.output import counted, say, write, write_table

if TYPE_CHECKING:
    from store.store import Store

ROWS: Final = 40
"""Shown of a result."""
_COUNTED: Final = 100_000
"""Rows beyond which those that are not shown are not counted."""

HELP: Final = """One SQL statement that reads, ended by ; or an empty line; the name of a saved query; or
  .tables        tables and views, with their columns
  .schema NAME   the columns of one, or of a macro such as final, with their types
  .save NAME     keep the last query in the campaign
  .run NAME      run a saved query
  .csv FILE      write the whole last result as CSV (.parquet, .md and .tex by the name, too)
  .quit          leave, as Ctrl-D does
Tab completes, Ctrl-C cancels a running query; docs/sql.md says what the columns mean."""


@final
class Session:
    """Answers inputs over one store."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._last: str | None = None

    def answer(self, text: str) -> bool:
        """Do what `text` asks for; whether the prompt goes on. An error is one sentence, and it does."""
        try:
            return self._answer(text.strip())
        except KeyboardInterrupt:
            say("cancelled")
        except AblateError as error:
            say(f"ablate: {error}")
        except Exception as error:  # noqa: BLE001  # the sitting and its last query outlast a fault of ours
            said = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"ablate: internal error, a bug in ablate: {said}; the prompt goes on")
        return True

    def _answer(self, text: str) -> bool:
        from store.files.saved_texts import QUERIES, is_name

        if text.startswith("."):
            return self._command(*text.split(maxsplit=1))
        name = text.removesuffix(";").strip()
        if name:
            self._show(QUERIES.text(self.store.layout, name) if is_name(name) else text)
        return True

    def _command(self, command: str, rest: str = "") -> bool:
        from store.files.saved_texts import QUERIES

        rest = rest.strip()
        if command in (".quit", ".exit", ".q"):
            return False
        if command == ".help":
            write(HELP)
        elif command == ".tables":
            self._tables()
        elif command not in COMMANDS:
            raise SpecError(f"there is no command {command}; there are {' '.join(COMMANDS)}")
        elif not rest:
            raise SpecError(f"{command} needs a {'file' if command == '.csv' else 'name'} after it; .help says more")
        elif command == ".schema":
            self._schema(rest)
        elif command == ".run":
            self._show(QUERIES.text(self.store.layout, rest))
        elif command == ".save":
            replaced = QUERIES.save(self.store.layout, rest, self._asked())
            say("replaced" if replaced else "saved")
        else:
            self._write(Path(rest).expanduser())
        return True

    def _show(self, query: str) -> None:
        found = cancellable(self.store, lambda: self.store.sql(query, most=_COUNTED + 1))
        self._last = query
        write_table(found.columns, found.head(ROWS).rows())
        more = found.height - ROWS
        if more > 0:
            number = f"more than {_COUNTED - ROWS}" if found.height > _COUNTED else str(more)
            say(f"{number} more; .csv FILE writes all, LIMIT asks for fewer")

    def _asked(self) -> str:
        if self._last is None:
            raise SpecError("there is no query yet; ask one first")
        return self._last

    def _write(self, file: Path) -> None:
        from store.export.formats import encoded, format_of
        from store.files.atomic import write_atomic

        query, kind = self._asked(), format_of(file)
        found = cancellable(self.store, lambda: self.store.sql(query))
        write_atomic(file, encoded(found, kind))
        say(f"{counted(found.height, 'row')} in {file}")

    def _tables(self) -> None:
        found = self.store.sql(
            "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_index) FROM duckdb_columns() "
            "WHERE database_name = 'store' AND NOT internal GROUP BY table_name ORDER BY table_name"
        )
        write_table(["table or view", "columns"], found.rows())

    def _schema(self, name: str) -> None:
        from store.database.schema_docs import meaning, relations

        macro = next((each for each in relations() if each.kind == "macro" and each.name == name.lower()), None)
        if macro is not None:
            given = ", ".join("NULL" for argument in macro.arguments.split(",") if ":=" not in argument)
            columns = self.store.sql(f"DESCRIBE FROM {macro.name}({given})").rows()
            write(f"{macro.name}({macro.arguments}): {macro.meaning}")
            write_table(["column", "type", "is"], [(each[0], each[1], meaning(macro, each[0])) for each in columns])
            return
        found = self.store.sql(
            "SELECT column_name, data_type, comment FROM duckdb_columns() "
            "WHERE database_name = 'store' AND NOT internal AND lower(table_name) = lower($name) ORDER BY column_index",
            {"name": name},
        )
        if found.is_empty():
            tables = self.store.sql(
                "SELECT DISTINCT table_name AS t FROM duckdb_columns() WHERE database_name = 'store'"
            )
            known = sorted({*tables["t"], *(each.name for each in relations())})
            raise NotFoundError(
                f"there is no table, view or macro {name!r}{suggest_name(name, known)}; .tables lists them"
            )
        write_table(["column", "type", "is"], found.rows())
