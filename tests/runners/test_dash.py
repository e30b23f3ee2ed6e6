"""`ablate dash` as a process: it says where it listens, answers, keeps strangers out, and ends when told to."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from synthetic import write_campaign

from ablate.runners.cli.app import execute


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dash") / "runs"
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4)
    return root


@contextmanager
def dashboard(*arguments: str, **environment: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process, and the address that it prints."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command, pipe = [sys.executable, "-m", "ablate", "dash", *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**kept, **environment}) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def answer(
    address: str, path: str, host: str | None = None, method: str = "GET", **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port)
    try:
        connection.request(method, path, headers=headers | ({"Host": host} if host else {}))
        found = connection.getresponse()
        return found.status, found.read().decode(), dict(found.getheaders())
    finally:
        connection.close()


def test_it_answers_here_and_ends_at_an_interrupt(campaign: Path) -> None:
    there = {"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22"}
    with dashboard(str(campaign), "--port", "0", **there) as (process, address):
        assert address.startswith("http://127.0.0.1:")
        status, text, headers = answer(address, "/")
        assert status == 200
        assert "<title>ablate</title>" in text
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
        status, text, _ = answer(address, "/files/runs/overview/progress.csv?grid=quickstart")
        assert (status, text.splitlines()[0].split(",")[:2]) == (200, ["cell", "seed"])
        for path in ("/files/runs/overview/../../etc/passwd", "/files/..%2f..%2fetc/overview/progress.csv"):
            status, text, _ = answer(address, path)
            assert "root:x:0" not in text
        status, text, _ = answer(address, "/files/other/overview/progress.csv")
        assert (status, "no campaign 'other'" in text) == (404, True)
        status, text, _ = answer(address, "/", host="attacker.example")
        assert (status, "answers to 127.0.0.1" in text) == (403, True)
        query = "/files/runs/sql/result.csv?query=SELECT+1"
        for path, site, target, expected in (
            ("/runs/sql?query=SELECT+1", "cross-site", "iframe", 403),
            ("/runs/sql?query=SELECT+1", "cross-site", "document", 200),
            ("/", "same-site", "empty", 403),
            (query, "cross-site", "document", 403),
            (query, "same-origin", "document", 200),
            (query, "none", "document", 200),
        ):
            asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": target}
            status, text, _ = answer(address, path, **asked)
            assert (status, "answers to its own pages" in text) == (expected, expected == 403), text
        for origin, expected in (("https://attacker.example", 403), ("null", 403), (address.rstrip("/"), 400)):
            body = {"Origin": origin, "Content-Type": "application/json"}
            assert answer(address, "/_dash-update-component", method="POST", **body)[0] == expected
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert process.returncode == 0
        assert out == ""
        assert f"ssh -N -L {urlsplit(address).port}:127.0.0.1" in err
        assert "Traceback" not in err


def test_another_address_needs_the_token_of_the_link(campaign: Path) -> None:
    with dashboard(str(campaign), "--port", "0", "--host", "0.0.0.0") as (process, link):
        port = urlsplit(link).port
        address = f"http://127.0.0.1:{port}/"
        assert link.startswith(f"http://0.0.0.0:{port}/?token=")
        for path in ("/", "/?token=wrong", "/files/runs/overview/progress.csv?grid=quickstart"):
            status, text, _ = answer(address, path)
            assert (status, "needs a token" in text, text.count("\n")) == (403, True, 0)
        token = urlsplit(link).query
        status, _, headers = answer(address, f"//attacker.example/runs/sql?a=b+c&{token}")
        assert (status, headers["Location"]) == (303, "/attacker.example/runs/sql?a=b+c")
        assert "HttpOnly" in headers["Set-Cookie"]
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert answer(address, "/", Cookie=cookie)[0] == 200
        assert answer(address, "/", Cookie=f"{cookie}x")[0] == 403
        process.terminate()
        assert "whoever has this link" in process.communicate()[1]


def test_a_port_that_is_taken_is_said(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert execute(["dash", str(campaign), "--port", str(port)]) == 5
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
    assert execute(["dash", str(campaign / "none")]) == 3
    assert "there is no campaign in" in capsys.readouterr().err
    assert execute(["dash", str(campaign), "--port", "70000"]) == 2
    assert "70000" in capsys.readouterr().err
