"""Asks before code of a campaign runs that this user did not make."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from cyclopts import Parameter

from runners.cli.options import Flag

if TYPE_CHECKING:
    from store.files.layout import Layout


@final
@dataclass(frozen=True)
class Trust:
    """Whether code of others may run.

    Parameters
    ----------
    trust
        Run the code that a campaign from somebody else names, now and later.
    """

    trust: Flag = False

    def require(self, layout: "Layout", code: Iterable[Path]) -> None:
        """Check that this user trusts the campaign, before its files `code` run.

        Raises:
            SpecError: the user neither made nor trusts it; names the files.
        """
        from grid.errors import SpecError
        from store.files.trust import trust, trusts

        files = ", ".join(map(str, code))
        if not files or trusts(layout, "code"):
            return
        if not self.trust:
            raise SpecError(
                f"you did not make the campaign {layout.root} here, and this command would run code that it names: "
                f"{files}; read it first, then add --trust"
            )
        trust(layout, "code")


TRUST_FLAG = Annotated[Trust, Parameter(name="*")]
"""Flattened: `--trust`."""

ONLY_OWN = Trust()
