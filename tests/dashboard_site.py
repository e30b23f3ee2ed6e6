"""The dashboard served on loopback, for tests with a real browser."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path

from werkzeug.serving import make_server

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.query_runner import QueryAnswer
from ablate.dashboards.app.server import HERE, make_app, refuse_strangers
from ablate.store import Store

PAGES = app_pages()


class Site:
    """The dashboard of some campaigns at `url`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.campaigns = Campaigns(roots)
        app = make_app(self.campaigns, PAGES)
        refuse_strangers(app.server, HERE)
        self._server = make_server("127.0.0.1", 0, app.server, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more; twice is once."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def in_this_process(store: Store, query: str, most: int) -> QueryAnswer:
    """Answer a query of the page SQL without a new process for it."""
    return QueryAnswer(store.sql(query, most=most), 0.0, datetime.now())


ServeSite = Callable[[Sequence[Path]], AbstractContextManager[Site]]


@contextmanager
def serve(roots: Sequence[Path]) -> Iterator[Site]:
    """A site for the time of a `with`."""
    site = Site(roots)
    try:
        yield site
    finally:
        site.close()
