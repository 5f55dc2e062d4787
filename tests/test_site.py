"""The site (make docs): it builds without a dead link, and its search answers questions of users."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.slow
QUESTIONS = {
    "How do I install it?": "write/first-steps",
    "I have never used a terminal": "write/first-steps",
    "import my references from Zotero": "write/library",
    "merge duplicates": "write/library",
    "how sure is a suggestion": "write/ask",
    "why was this paper suggested?": "write/ask",
    "fill missing citations in a LaTeX draft": "write/drafts",
    "cite in Word": "write/word",
    "find wrong citation keys": "write/check",
    "Neovim settings": "write/editors",
    "VS Code": "write/editors",
    "REST API": "write/server",
    "MCP assistant Claude": "write/server",
    "read PDFs": "write/fulltexts",
    "missing abstracts": "write/enrich",
    "retracted papers": "write/enrich",
    "is a reference invented": "write/references",
    "damaged library": "write/safety",
    "How many papers can a library hold?": "write/safety",
    "how good is the built-in model": "write/model",
    "what data format do I need?": "research/data",
    "build a corpus from JATS XML": "research/build",
    "check a corpus for leaks": "research/data",
    "train HAtten with the paper's recipe": "research/hatten",
    "BM25 constants k1 b": "research/retrievers",
    "features of the ranker": "research/ranking",
    "train a SciBERT cross-encoder": "research/reranking",
    "significance test of two runs": "research/evaluation",
    "use it with PyTerrier": "research/evaluation",
    "MDCR benchmark": "research/global",
    "several GPUs": "research/scale",
    "upload a model to the hub": "research/publishing",
    "How fast is it?": "results/speed",
    "what did not help": "results/trials",
    "add a new retriever": "develop/contributing",
    "Recommender in Python": "api/library",
}
"""Questions of users, and the page that answers each."""
ASK = """async questions => {
  const { base, search } = JSON.parse(document.getElementById("__config").textContent)
  const index = await (await fetch(new URL(base + "/search/search_index.json", location))).json()
  const worker = new Worker(new URL(search, location))
  const answer = message => new Promise(resolve => {
    worker.onmessage = event => resolve(event.data)
    worker.postMessage(message)
  })
  await answer({ type: 0, data: { ...index, options: { suggest: false } } })
  const first = []
  for (const question of questions)
    first.push((await answer({ type: 2, data: question })).data.items[0]?.[0].location ?? "")
  return first
}"""
"""Asks the site's own search (a worker), as its box does; the place of the first hit of each question."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site and serve it; its address."""
    folder = tmp_path_factory.mktemp("site")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_search_finds_the_page_that_answers(site: str) -> None:
    requested: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.on("request", lambda sent: requested.append(sent.url))
        page.goto(site)
        places = page.evaluate(ASK, list(QUESTIONS))
        browser.close()
    pages = [place.partition("#")[0].strip("/") for place in places]
    assert dict(zip(QUESTIONS, pages, strict=True)) == QUESTIONS
    assert [address for address in requested if not address.startswith((site, "data:"))] == []


def test_the_reference_shows_docstrings(site: str) -> None:
    with urlopen(f"{site}api/library/") as answer:
        text = answer.read().decode()
    assert 'id="citerec.Recommender.recommend"' in text and "Recommend" in text
