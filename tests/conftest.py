"""Shared fixtures: a corpus small enough to check manually, local servers, and tiny models."""

from __future__ import annotations

import base64
import functools
import gc
import importlib
import json
import logging
import os
import re
import runpy
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpcore2
import hypothesis
import pytest
import requests

import citerec.evaluation.settings
import citerec.library.benchmark.settings
import citerec.train  # noqa: F401  (schemas and resolvers of the configuration)
from citerec import recommend
from citerec.base.configuration import prepare_hydra
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import open_demo
from citerec.datasets.prepare import open_corpus
from citerec.hatten.static.model import StaticModel
from citerec.library.papers.models import BUILT_IN, NETWORKS
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.session import cores
from citerec.tests.composing import compose_faster

# Tests that a shell runs in the background start processes that would ignore interrupts, as they do.
signal.signal(signal.SIGINT, signal.default_int_handler)
pytest.register_assert_rewrite("citerec.tests.runs")  # its assertions say what differs, too
prepare_hydra()
for _profile, _examples in (("thorough", 50), ("quick", 25)):  # of make test-all, and of make test
    hypothesis.settings.register_profile(_profile, deadline=None, derandomize=True, max_examples=_examples)
hypothesis.settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: tests also wait, for processes, browsers and clocks."""
    return cores() + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that no worker is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def no_encoding_warnings_in_commands() -> None:
    """Warn of missing encodings in this process, not in the output of commands that tests run."""
    os.environ.pop("PYTHONWARNDEFAULTENCODING", None)


def pytest_collection() -> None:
    """Collect no garbage while modules are imported: a sixth of that time goes into it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave all that was imported out of later collections, which take a tenth of the time of the tests."""
    gc.freeze()
    gc.enable()


PAPERS: dict[str, dict[str, Any]] = {
    "parsing": {"title": "Dependency parsing", "abstract": "A transition based parser for dependency trees."},
    "graph": {"title": "Graph networks", "abstract": "Messages pass along the edges of a graph."},
    "speech": {"title": "Speech recognition", "abstract": "Acoustic models map sound waves to phonemes."},
    "retrieval": {"title": "Document retrieval", "abstract": "Inverted lists rank documents for a query."},
    "vision": {"title": "Image classification", "abstract": "Convolutions recognise objects in pictures."},
    "poetry": {"title": "Poetry generation", "abstract": "Rhyme and metre constrain a language model."},
    "bare": {"title": "A title without abstract about parsing trees", "abstract": ""},
    "citing-train-1": {"title": "Trees for everyone", "abstract": "We parse many languages into trees."},
    "citing-train-2": {"title": "Sound and vision", "abstract": "We join acoustic and visual signals."},
    "citing-val": {"title": "Searching graphs", "abstract": "We search documents linked by edges."},
    "citing-test-1": {"title": "Parsing spoken queries", "abstract": "We parse queries from speech."},
    "citing-test-2": {"title": "Verses about pictures", "abstract": "We write rhyme for pictures."},
}

CONTEXTS: dict[str, tuple[str, str, str, str]] = {
    # id: (split, citing, cited, text)
    "c1": (
        "train",
        "citing-train-1",
        "parsing",
        "Early transition systems TARGETCIT built trees greedily OTHERCIT.",
    ),
    "c2": ("train", "citing-train-1", "parsing", "We start from the parser of TARGETCIT for all languages."),
    "c3": ("train", "citing-train-1", "graph", "Edges carry messages (TARGETCIT) between words."),
    "c4": ("train", "citing-train-2", "speech", "Acoustic features TARGETCIT were taken from sound waves."),
    "c5": ("train", "citing-train-2", "vision", "Objects in pictures are found as in TARGETCIT."),
    "c6": ("train", "citing-train-2", "parsing", "A dependency parser TARGETCIT reads the captions."),
    "c7": ("val", "citing-val", "retrieval", "Documents are ranked by inverted lists TARGETCIT."),
    "c8": ("val", "citing-val", "graph", "Graph networks OTHERCIT TARGETCIT pass messages."),
    "c9": (
        "test",
        "citing-test-1",
        "speech",
        "Speech recognition OTHERCIT turns sound into phonemes TARGETCIT.",
    ),
    "c10": ("test", "citing-test-1", "parsing", "Queries are parsed by a dependency parser TARGETCIT."),
    "c11": ("test", "citing-test-2", "poetry", "Rhyme and metre guide the language model TARGETCIT."),
    "c12": ("test", "citing-test-2", "vision", "Convolutions TARGETCIT recognise what a picture shows."),
}


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write nothing into the user's cache, do not wait for disks, and read certificates and files of
    the configuration once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CITATION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr("httpcore2.default_ssl_context", functools.cache(httpcore2.default_ssl_context))
        compose_faster(patch)
        yield


def write_tiny(folder: Path) -> Path:
    folder.mkdir()
    papers = {
        key: {**paper, "year": 2000 + i, "authors": []} for i, (key, paper) in enumerate(PAPERS.items())
    }
    contexts = {
        key: {"masked_text": text, "context_id": key, "citing_id": citing, "refid": cited}
        for key, (_, citing, cited, text) in CONTEXTS.items()
    }
    (folder / "papers.json").write_text(json.dumps(papers))
    (folder / "contexts.json").write_text(json.dumps(contexts))
    for split in ("train", "val", "test"):
        queries = [
            {"context_id": key, "positive_ids": [cited]}
            for key, (of, _, cited, _) in CONTEXTS.items()
            if of == split
        ]
        (folder / f"{split}.json").write_text(json.dumps(queries))
    return folder


@pytest.fixture
def tiny_source(tmp_path: Path) -> Path:
    """A folder of source files: 12 papers (11 with an abstract), 12 contexts in train, val and test."""
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="session")
def tiny_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the prepared store of `tiny_source`."""
    folder = tmp_path_factory.mktemp("stores")
    open_corpus(write_tiny(folder / "tiny"), cache_dir=folder / "cache")
    return folder / "cache"


@pytest.fixture
def tiny_corpus(tiny_source: Path, tiny_stores: Path, tmp_path: Path) -> Corpus:
    """The prepared store of `tiny_source`, copied rather than prepared for each test."""
    shutil.copytree(tiny_stores, tmp_path / "cache", dirs_exist_ok=True)
    return open_corpus(tiny_source, cache_dir=tmp_path / "cache")


@pytest.fixture(scope="session")
def demo_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A generated corpus of 120 papers and 300 contexts; tests only read it."""
    return open_demo(papers=120, contexts=300, cache_dir=tmp_path_factory.mktemp("demo"))


class Server:
    """A local web server: `put` serves content at a path, `requests` lists (path, Range header)."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            do_HEAD = do_GET

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def put(self, path: str, body: bytes | str = b"", **options: Any) -> str:
        """Serve `body` at `path` and return its URL.

        options: status, headers (override the defaults, None removes one), ranges (True if supported),
        cut (bytes after which a response breaks off), cuts (maximum number of such breaks), pause (seconds
        before each KiB).
        """
        body = body.encode() if isinstance(body, str) else body
        self.pages[f"/{path}"] = {"body": body, "ranges": True, "cuts": 10**9} | options
        return f"{self.url}/{path}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append((request.path, wanted := request.headers.get("Range")))
        page = self.pages.get(request.path, {"body": b"nothing there", "status": 404, "ranges": False})
        body, status, start = page["body"], page.get("status", 200), 0
        headers = {"ETag": f'"{zlib.crc32(body)}"', "Content-Type": "application/octet-stream"}
        if wanted and page["ranges"] and status == 200:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(body) else 416
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        headers["Content-Length"] = str(len(body) - start if status != 416 else 0)
        request.send_response(status)
        for key, value in (headers | page.get("headers", {})).items():
            if value is not None:
                request.send_header(key, value)
        request.end_headers()
        rest = body[start:] if status != 416 and request.command != "HEAD" else b""
        if page.get("cut") is not None and page["cuts"] > 0:
            rest, page["cuts"] = rest[: page["cut"]], page["cuts"] - 1
        with suppress(ConnectionError):
            for at in range(0, len(rest), 1024):
                if "pause" in page:
                    time.sleep(page["pause"])
                request.wfile.write(rest[at : at + 1024])


@pytest.fixture(scope="session", autouse=True)
def model_in_use() -> Iterator[object]:
    """Keep the built-in model open, which libraries share while one of them uses it."""
    networks = Networks.open(BUILT_IN / NETWORKS).encoder
    networks.open()
    yield StaticModel.open(BUILT_IN), networks


@pytest.fixture(autouse=True)
def blank_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are blank but in tests marked `pictures`: drawing takes longer than training a tiny model."""
    if request.node.get_closest_marker("pictures") is None:
        save = "matplotlib.figure.Figure.savefig"
        monkeypatch.setattr(save, lambda _, file, **options: Path(file).write_bytes(b"\x89PNG"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server for one test; downloads retry without a pause."""
    monkeypatch.setattr(importlib.import_module("gdown.download"), "_wait_or_cancel", lambda **_: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


COMMIT = "0" * 40


class Hub(Server):
    """A minimal huggingface.co: accepts uploads of one commit and serves their files."""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.command == "POST":
            sent = request.rfile.read(int(request.headers["Content-Length"]))
            repo = re.fullmatch(r"/api/models/(.+/.+)/(preupload|commit)/main", request.path)
            made: dict[str, Any] = {"url": f"{self.url}/someone/model", "errors": [], "warnings": []}
            if request.headers.get("Authorization") != "Bearer hf_write":
                self.put(request.path[1:], "{}", status=401)
            elif repo and repo[2] == "preupload":
                files = [{**file, "uploadMode": "regular"} for file in json.loads(sent)["files"]]
                made = {"files": [{**file, "shouldIgnore": False} for file in files]}
            elif repo:
                made = {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.url}/{repo[1]}/commit/0"}
                lines = [json.loads(line) for line in sent.splitlines()]
                self.add_files(repo[1], {
                    line["value"]["path"]: base64.b64decode(line["value"]["content"])
                    for line in lines
                    if line["key"] == "file"
                })  # fmt: skip
            self.pages.setdefault(request.path, {"body": json.dumps(made).encode(), "ranges": False})
        super().answer(request)

    def add_files(self, repo: str, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            self.put(f"{repo}/resolve/{COMMIT}/{name}", content, headers={"X-Repo-Commit": COMMIT})
        model = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        self.put(f"api/models/{repo}/revision/main", json.dumps(model))
        listed = [{"type": "file", "path": n, "size": len(c), "oid": n} for n, c in files.items()]
        self.put(f"api/models/{repo}/tree/{COMMIT}?recursive=true&expand=false", json.dumps(listed))

    def fetched(self) -> set[str]:
        """Return the names of the downloaded files."""
        return {path.rpartition("/")[2] for path, _ in self.requests if "/resolve/" in path}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub for one test in place of huggingface.co, with its own cache."""
    from huggingface_hub import constants

    hub = Hub()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield hub
    hub.http.shutdown()
    hub.http.server_close()


@pytest.fixture
def drive(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same server in place of Google's: https://HOST.google.com/PATH is served from HOST/PATH."""
    send = requests.adapters.HTTPAdapter.send

    def reroute(self: Any, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        assert request.url is not None
        request.url = re.sub(
            r"^https://(\w+)(\.usercontent)?\.google\.com", rf"{server.url}/\1\2", request.url
        )
        return send(self, request, **options)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", reroute)
    return server


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with random weights and the words of the tiny corpus, saved in Hugging Face format."""
    from citerec.speed._common import save_random_bert

    folder = tmp_path_factory.mktemp("tiny-bert")
    texts = [f"{paper['title']} {paper['abstract']}" for paper in PAPERS.values()]
    texts += [text for *_, text in CONTEXTS.values()]
    words = sorted(set(re.findall(r"\w+|[^\w\s]", " ".join(texts).lower())))
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    save_random_bert(folder, words, max_position_embeddings=128, initializer_range=0.5, **sizes)
    return folder


@pytest.fixture(scope="session")
def tiny_networks(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graphs of `tiny_bert` as encoder and, with a random head, as cross-encoder."""
    import numpy as np
    from safetensors.numpy import load_file

    from citerec.retrieval.networks.graph import Bert, Head
    from citerec.retrieval.networks.inputs import Lengths
    from citerec.retrieval.networks.networks import CROSS_ENCODER, ENCODER, Networks

    folder = tmp_path_factory.mktemp("networks")
    weights = load_file(tiny_bert / "model.safetensors")
    size = weights["embeddings.word_embeddings.weight"].shape[1]
    head = Head(np.random.default_rng(0).standard_normal((size,), np.float32), 0.0)
    graphs = {ENCODER: Bert(weights, 2), CROSS_ENCODER: Bert(weights, 2, head=head)}
    tokenizer = (tiny_bert / "tokenizer.json").read_text("utf-8")
    Networks.write(folder, graphs, tokenizer, Lengths(before=12, after=8, abstract=24))
    return folder


@pytest.fixture(scope="session")
def make_encoder(tiny_bert: Path) -> Callable[..., Any]:
    """Return a function that makes cross-encoders from `tiny_bert`; pairs: options of PairSettings."""
    from citerec.rerank.cross_encoder.network import CrossEncoder
    from citerec.rerank.settings import PairSettings
    from citerec.retrieval.settings import ArticleConfig

    def make(head: str = "sigmoid", seed: int = 0, **pairs: Any) -> CrossEncoder:
        config = PairSettings(**{"max_tokens": 64, **pairs})
        return CrossEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert)), config, head, seed).eval()

    return make


@pytest.fixture(scope="session")
def tiny_reranker(make_encoder: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained cross-encoder, saved as by a training."""
    folder: Path = make_encoder("linear").save(tmp_path_factory.mktemp("rerankers") / "tiny-reranker")
    return folder


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Done]]:
    """Runs a script of the checkout, or a command of `citerec`, in this process and the test's folder."""

    def run(name: str, *arguments: str) -> Done:
        is_file = name.endswith(".py")
        monkeypatch.setattr("sys.argv", [name, *arguments] if is_file else ["citerec", name, *arguments])
        capsys.readouterr()
        try:
            if is_file:
                runpy.run_path(str(Path(__file__).parents[1] / name), run_name="__main__")
            else:
                runpy.run_module("citerec", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level  # Hydra replaces them
    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `citerec ARGUMENTS`: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["recommend.py", *arguments])
        try:
            recommend.main()
            code: object = 0
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return int(str(code)), out, err

    return run
