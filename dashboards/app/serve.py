"""The dashboard as a server that runs until it is told to end."""

import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import waitress  # type: ignore[import-untyped]

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.query_runner import SPARE
from ablate.dashboards.app.server import HERE, ip_of, make_app, refuse_strangers
from ablate.grid.errors import EnvironmentProblem

THREADS: Final = 8


def serve(
    roots: Sequence[Path],
    *,
    host: str,
    port: int,
    ready: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Show the campaigns `roots` until the process is interrupted.

    `ready` gets the address once it answers, `say` what people should know. Port 0 takes a free one. Another host than
    this machine needs the token in the printed link. Raises EnvironmentProblem if it cannot listen there.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a page asks for several things at once
    campaigns = Campaigns(roots)
    app = make_app(campaigns, app_pages(say))
    address = ip_of(host)
    is_here = host == "localhost" if address is None else address.is_loopback
    token = None if is_here else secrets.token_urlsafe()
    names = [*HERE, host, socket.gethostname().lower(), socket.getfqdn().lower()]
    refuse_strangers(app.server, names, token)
    listening = _listening(host, port)
    where = listening.getsockname()[1]
    server = waitress.create_server(app.server, sockets=[listening], threads=THREADS, ident=None)
    if token is not None:
        say("whoever has this link can read these campaigns and query them; a browser keeps its token as a cookie")
    elif "SSH_CONNECTION" in os.environ:
        say(f"from your own machine: ssh -N -L {where}:{host}:{where} {socket.gethostname()}")
    campaigns.follow()
    try:
        named = f"[{host}]" if ":" in host else host
        with SPARE:
            ready(f"http://{named}:{where}/{f'?token={token}' if token else ''}")
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
