"""Opens every page of the built site in headless Chromium, on a telephone's and a desktop's width.

    make browse

A page fails if it writes an error to the console, if one of its requests fails or leaves this machine, or if it is
wider than the window. The search has to find a page too. `--pictures DIR` keeps a picture of each page. Chromium is
spoken to over its debugging pipe, so nothing but the standard library is needed beside it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent.parent.parent / "build" / "docs"
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
WIDTHS = (400, 1280)
HEIGHT = 900
PATIENCE_SECONDS = 60
# The innermost boxes that reach beyond the window, but for those inside of a box that scrolls by itself.
TOO_WIDE = """
(() => {
  const root = document.documentElement, width = root.clientWidth;
  if (root.scrollWidth <= width) return [];
  const scrolls = (e) => e && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const reaches = (e) => e.getBoundingClientRect().right > width + 1;
  const boxes = [...document.querySelectorAll("article *")].filter(
    (e) => reaches(e) && ![...e.children].some(reaches) && !scrolls(e.parentElement));
  const texts = boxes.map((e) => `<${e.tagName.toLowerCase()}> ${e.textContent.trim().slice(0, 60)}`);
  return [`${root.scrollWidth} px wide: ` + texts.slice(0, 3).join(", ")];
})()
"""
SEARCH = """
new Promise((found) => {
  const results = document.querySelector("[data-md-component=search-result]");
  new MutationObserver(() => {
    const links = results.querySelectorAll("a.md-search-result__link").length;
    if (links) found(links);
  }).observe(results, {childList: true, subtree: true});
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus();
  field.value = "reconfigure";
  field.dispatchEvent(new Event("keyup"));
  setTimeout(() => found(0), 20000);
})
"""


class Browser:
    """Chromium with one open page. Complaints about the page gather in `complaints` as they come."""

    def __init__(self, program: str, profile: str, origin: str) -> None:
        to_it, ours = os.pipe()
        theirs, from_it = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        shell = f'exec "$0" "$@" 3<&{to_it} 4>&{from_it}'
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *options], pass_fds=(to_it, from_it), stderr=subprocess.DEVNULL
        )
        os.close(to_it)
        os.close(from_it)
        self._to_it = os.fdopen(ours, "wb")
        self._from_it = theirs
        self._heard = b""
        self._sent = 0
        self._origin = origin
        self._loaded = False
        self._requested: dict[str, str] = {}
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def end(self) -> None:
        self._ask("Browser.close")
        self._process.wait(PATIENCE_SECONDS)

    def open(self, address: str, width: int) -> None:
        self.complaints, self._loaded = [], False
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=width < 800
        )
        self.ask("Page.navigate", url=address)
        while not self._loaded:
            self._take(self._read())

    def evaluate(self, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self) -> bytes:
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=False)["data"])

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._ask(method, self._session, **parameters)

    def _ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        request = {
            "id": self._sent,
            "method": method,
            "params": parameters,
            **({"sessionId": session} if session else {}),
        }
        self._to_it.write(json.dumps(request).encode() + b"\0")
        self._to_it.flush()
        while (message := self._read()).get("id") != self._sent:
            self._take(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        answer: dict[str, Any] = message["result"]
        return answer

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._heard:
            if not select.select([self._from_it], [], [], PATIENCE_SECONDS)[0]:
                raise RuntimeError(f"Chromium has said nothing for {PATIENCE_SECONDS} s")
            more = os.read(self._from_it, 1 << 20)
            if not more:
                raise RuntimeError(f"Chromium ended with exit code {self._process.wait(PATIENCE_SECONDS)}")
            self._heard += more
        text, _, self._heard = self._heard.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _take(self, event: dict[str, Any]) -> None:
        what, about = event.get("method"), event.get("params", {})
        if what == "Page.loadEventFired":
            self._loaded = True
        elif what == "Network.requestWillBeSent":
            self._requested[about["requestId"]] = address = about["request"]["url"]
            if not address.startswith((self._origin, "data:", "blob:")):
                self.complaints.append(f"asks for {address}, which is not of the site")
        elif what == "Network.loadingFailed" and not about.get("canceled"):
            self.complaints.append(f"{self._requested.get(about['requestId'])}: {about['errorText']}")
        elif what == "Network.responseReceived" and about["response"]["status"] >= 400:
            self.complaints.append(f"{about['response']['url']}: status {about['response']['status']}")
        elif what == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif what == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            self.complaints.append(" ".join(str(word.get("value")) for word in about["args"]))
        elif what == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(about["entry"]["text"])


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which this machine shows the folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def complaints(browser: Browser, origin: str, pictures: Path | None) -> Iterator[str]:
    pages = sorted(page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html"))
    for width in WIDTHS:
        for page in pages:
            browser.open(f"{origin}/{page}", width)
            wide = browser.evaluate(TOO_WIDE)
            yield from (f"{page} at {width} px: {what}" for what in [*browser.complaints, *wide])
            if pictures:
                (pictures / f"{page.replace('/', '-')}-{width}.png").write_bytes(browser.picture())
    browser.open(f"{origin}/index.html", WIDTHS[-1])
    if not browser.evaluate(SEARCH):
        yield "the search finds nothing"
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="write a picture of each page here")
    options = parser.parse_args()
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        sys.exit(f"none of {', '.join(PROGRAMS)} is here; on Debian: apt-get install {PROGRAMS[0]}")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with served(SITE) as origin, tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile, origin)
        found = list(complaints(browser, origin, options.pictures))
        browser.end()
    print("\n".join(found) or "nothing is wrong")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
