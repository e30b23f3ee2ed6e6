"""Campaigns with known numbers, reports of them, and a browser to look at them."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from dashboard_site import ServeSite, Site, serve
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from synthetic import MEASURE, SUBMISSION, plan_header, plan_lines, publish_grid, write_campaign, write_end, write_start

from ablate.store import Store
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer

SEEDS = (0, 1, 2)
PATIENCE_MS = 90_000
"""Browser tests wait for a condition, and fail after so long on a busy machine."""
HOSTILE = (
    "softmax",
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror=window.hacked=2>",
    "%{x}<b>&amp;\"'",
)
Values = Mapping[tuple[str, int], float]


def write_known(root: Path, values: Values, *, scale: str = "log", steps: int = 4, first: int = 0) -> Layout:
    """A campaign whose "mse" at seed s, sigma_f f and sigma_x x is `values[operator, s] * f * x`.

    The loss at step t is `values[operator, s] * (t - first + 1)`; the number "n" at layer l and head h is l + 10 h + s.
    """
    operators = list(dict.fromkeys(operator for operator, _ in values))
    lines = plan_lines(operators, sorted({seed for _, seed in values}), "known", {})
    header = plan_header(lines, "known", {}, operators) | {"measure": MEASURE | {"scale": scale}}
    layout = Layout(root)
    publish_grid(layout, header, lines)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for line in lines:
        key, value = line["trial"], values[line["operator"], line["seed"]]
        write_start(layout, key, 1)
        buffer.extend("metric", [(key, 1, first + i, "loss", value * (i + 1), 0.0) for i in range(steps)])
        for f in (1.0, 5.0, 9.0):
            for x in (1.0, 2.0):
                buffer.add("evaluation", (key, 1, steps, "mse", {"sigma_f": f, "sigma_x": x}, value * f * x, 10, None))
        for layer in (0, 1):
            for head in (0, 1):
                number = layer + 10 * head + line["seed"]
                buffer.add("probe", (key, 1, steps, "number.n", layer, head, {}, float(number)))
        write_end(layout, key, 1, step=steps)
    buffer.flush()
    return layout


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """A store of a campaign that `write_known` wrote."""
    stores: list[Store] = []

    def open_store(values: Values, *, scale: str = "log", steps: int = 4, first: int = 0) -> Store:
        write_known(tmp_path / "known", values, scale=scale, steps=steps, first=first)
        stores.append(Store.open(tmp_path / "known"))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """softmax 1, 2, 4 and SSA half of it, over three seeds."""
    root = tmp_path_factory.mktemp("known") / "known"
    base = {("softmax", seed): 2.0**seed for seed in SEEDS}
    write_known(root, base | {("SSA", seed): 2.0 ** (seed - 1) for seed in SEEDS})
    with Store.open(root) as store:
        yield store


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with hostile labels, failures and open trials, in a directory with a hostile name."""
    root = tmp_path_factory.mktemp("campaigns") / "<i>runs</i>"
    write_campaign(
        root,
        operators=("softmax", *HOSTILE[1:], "SSA"),
        seeds=range(4),
        failed={("SSA", 1): "error", ("SSA", 2): "diverged"},
        pending=[(HOSTILE[1], 3)],
        steps=24,
        sigma_f=(1, 5, 10),
        sigma_x=(1, 2),
    )
    return root


def chromium(environment: Mapping[str, str]) -> str | None:
    """The browser to test with; None where there is none and none has to be."""
    found = environment.get("BROWSER_PATH") or shutil.which("chromium", path=environment.get("PATH", ""))
    if found is None and environment.get("CI"):
        raise RuntimeError("the browser tests need Chromium where CI is set; install it or set BROWSER_PATH")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    path = chromium(os.environ)
    if path is None:
        pytest.skip("there is no Chromium to look at the page with: apt-get install chromium, or set BROWSER_PATH")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def serve_site() -> Iterator[ServeSite]:
    """`with serve_site([campaign]) as site:` answers at `site.url`, to the end, so that no page sees it go."""
    with ExitStack() as sites:

        @contextmanager
        def keep_open(roots: Sequence[Path]) -> Iterator[Site]:
            yield sites.enter_context(serve(roots))

        yield keep_open


@pytest.fixture(scope="session")
def tabs(browser: Browser) -> Iterator[BrowserContext]:
    """The context of every `page`, which keeps the scripts that a server has sent."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light") as context:
        context.set_default_timeout(PATIENCE_MS)
        yield context


@pytest.fixture
def page(tabs: BrowserContext) -> Iterator[Page]:
    """A fresh tab; whatever its console complains about, and whatever asks another machine, fails the test."""
    found = tabs.new_page()
    complaints: list[str] = []
    found.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: complaints.append(str(error)))
    own = ("http://127.0.0.1:", "data:", "blob:")
    found.on("request", lambda asked: None if asked.url.startswith(own) else complaints.append(asked.url))
    yield found
    if found.url.startswith("http"):
        found.evaluate("() => localStorage.clear()")  # the theme
    found.close()
    assert complaints == []


class Seen:
    """Requests and console messages of an open page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Seen]]:
    """Opens a file in a fresh page, and waits until its figures are drawn."""
    contexts = []

    def open_page(path: Path, *, scheme: str = "light", width: int = 1280) -> Seen:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        seen = Seen(context.new_page())
        seen.page.goto(path.resolve().as_uri())
        seen.page.wait_for_selector("html[data-drawn]", state="attached")
        return seen

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two operators on two seeds."""
    root = tmp_path_factory.mktemp("small") / "runs"
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4)
    return root
