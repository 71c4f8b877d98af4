"""Opens every page of the built site in headless Chromium, as wide as a telephone and as a desktop's window.

    make browse

A page fails if it writes an error to the console, if one of its requests fails or leaves this machine, or if it is
wider than the window; a figure, if a text of it reaches beyond its box. The search has to find a page too. `--pictures
DIR` keeps a picture of each page. Chromium is spoken to over its debugging pipe, so nothing but the standard library is
needed beside it.
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
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent.parent.parent / "build" / "docs"
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
WIDTHS = (400, 1280)
HEIGHT = 900
PATIENCE_SECONDS = 60  # with each page
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
# A page that has just been made narrower is judged as it will look, not while its parts move.
STILL = """
addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "* { transition: none !important; animation: none !important }";
  document.head.append(style);
});
"""
# The texts of a figure that leave the smallest rectangle in which they begin, or the picture.
OVERFLOWS = """
(() => {
  const boxes = [...document.querySelectorAll("rect")].map((e) => e.getBBox());
  boxes.push(document.documentElement.viewBox.baseVal.width ? document.documentElement.viewBox.baseVal
                                                           : document.documentElement.getBBox());
  boxes.sort((a, b) => a.width * a.height - b.width * b.height);
  const holds = (box, x, y) => box.x <= x && x <= box.x + box.width && box.y <= y && y <= box.y + box.height;
  return [...document.querySelectorAll("text")].filter((e) => !e.hasAttribute("transform")).filter((e) => {
    const text = e.getBBox(), y = text.y + text.height / 2;
    const box = boxes.find((one) => holds(one, text.x, y));
    return !box || !holds(box, text.x + text.width, y);
  }).map((e) => `"${e.textContent}" leaves its box`);
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
        self._address, self._until = "Chromium's start", time.monotonic() + PATIENCE_SECONDS
        self._loaded = False
        self._requested: dict[str, str] = {}
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=STILL)

    def end(self) -> None:
        """Chromium ends when its pipe does; it is not waited for as long as it likes."""
        self._to_it.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, address: str) -> None:
        self.complaints, self._loaded, self._address = [], False, address
        self._until = time.monotonic() + PATIENCE_SECONDS
        self.ask("Page.navigate", url=address)
        while not self._loaded:
            self._take(self._read())

    def resize(self, width: int) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)

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
            if not select.select([self._from_it], [], [], max(0.0, self._until - time.monotonic()))[0]:
                raise RuntimeError(f"{self._address} was not done within {PATIENCE_SECONDS} s")
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
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def complaints(browser: Browser, origin: str, pictures: Path | None) -> Iterator[str]:
    pages = sorted(page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html"))
    for page in pages:
        browser.open(f"{origin}/{page}")
        for width in WIDTHS:
            browser.resize(width)
            yield from (f"{page} at {width} px: {what}" for what in browser.evaluate(TOO_WIDE))
            if pictures:
                (pictures / f"{page.replace('/', '-')}-{width}.png").write_bytes(browser.picture())
        yield from (f"{page}: {what}" for what in browser.complaints)
    figures = sorted(figure.relative_to(SITE).as_posix() for figure in (SITE / "figures").glob("*.svg"))
    for figure in figures:
        browser.open(f"{origin}/{figure}")
        yield from (f"{figure}: {what}" for what in browser.evaluate(OVERFLOWS))
    browser.open(f"{origin}/index.html")
    if not browser.evaluate(SEARCH):
        yield "the search finds nothing"
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px, {len(figures)} figures", flush=True)


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
        try:
            found = list(complaints(browser, origin, options.pictures))
        finally:
            browser.end()
    print("\n".join(found) or "nothing is wrong")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
