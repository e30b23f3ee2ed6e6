"""Commands that show a campaign: the report and the dashboard."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import AnyGrid, Campaign
from ablate.runners.cli.resolve import find_campaign, find_campaigns, read_warnings
from ablate.runners.output import tell, write
from ablate.runners.result_stream import results


def report(
    path: Path | None = None, /, *, campaign: Campaign = None, grid: AnyGrid = None, out: Path | None = None
) -> None:
    """Write the campaign's report: one HTML file that works offline.

    Parameters
    ----------
    path
        The campaign directory, in place of --campaign.
    out
        The file to write; default report.html in the campaign.
    """
    from ablate.dashboards import write_report
    from ablate.store.store import Store

    if path is not None and campaign is not None:
        raise SpecError(f"{path} and --campaign {campaign} name two campaigns; a report is of one, leave one out")
    root = find_campaign(path or campaign)
    written = write_report(root, out, grid)
    with Store.open(root) as store:
        read_warnings(store, grid)
    tell("the report is")
    write(str(written.resolve()))


def dash(
    *campaigns: Path,
    campaign: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    port: int = 8050,
    host: str = "127.0.0.1",
) -> None:
    """Open the dashboard of campaigns in a browser, live while trials run.

    Ctrl-C ends it.

    Parameters
    ----------
    campaigns
        Campaign directories; default the working directory if it is one, or all below campaigns/.
    campaign
        The same, as other commands take them.
    port
        Where it listens; 0 takes a free port.
    host
        The address it listens at. Any other than this machine itself needs the link with a token that is printed.
    """
    from ablate.dashboards.app.serve import serve

    if not 0 <= port < 2**16:
        raise SpecError(f"--port {port} is no port; give a number from 0 to {2**16 - 1}")

    def write_now(line: str) -> None:
        write(line)
        results().flush()

    serve(find_campaigns((*campaigns, *campaign)), host=host, port=port, ready=write_now, say=tell)
