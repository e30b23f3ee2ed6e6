"""The dashboard as a server that runs until it is told to end."""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import waitress  # type: ignore[import-untyped]

from dashboards.app.campaigns import Campaigns
from dashboards.app.pages import PAGES
from dashboards.app.server import HERE, make_app, refuse_other_hosts
from grid.errors import EnvironmentProblem
from grid.operator_view import OperatorCatalogue

PORT: Final = 8050
THREADS: Final = 8


def serve(
    roots: Sequence[Path],
    *,
    host: str,
    port: int,
    ready: Callable[[str], None],
    say: Callable[[str], None],
    maths: OperatorCatalogue | None = None,
) -> None:
    """Show the campaigns `roots` until the process is interrupted.

    Args:
        roots: campaign directories; what is wrong with one is told on its pages.
        host: where to listen; anything but this machine itself is warned of.
        port: 0 takes a free one.
        ready: called with the address once it answers.
        say: called with what people should know.
        maths: what knows the operators.

    Raises:
        EnvironmentProblem: it cannot listen there.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a page asks for several things at once
    campaigns = Campaigns(roots)
    app = make_app(campaigns, PAGES, maths)
    refuse_other_hosts(app.server, [*HERE, host, socket.gethostname().lower(), socket.getfqdn().lower()])
    listening = _listening(host, port)
    where = listening.getsockname()[1]
    server = waitress.create_server(app.server, sockets=[listening], threads=THREADS, ident=None)
    if host not in HERE:
        say(f"whoever reaches port {where} of this machine can read these campaigns and query them")
    elif "SSH_CONNECTION" in os.environ:
        say(f"from your own machine: ssh -N -L {where}:{host}:{where} {socket.gethostname()}")
    campaigns.follow()
    try:
        ready(f"http://{host}:{where}/")
        server.run()
    finally:
        server.close()
        campaigns.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise EnvironmentProblem(
            f"nothing can listen at {host}:{port} ({error.strerror}); choose another --port"
        ) from error
