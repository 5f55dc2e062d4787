"""Registry of downloads: addresses, sizes, checksums and files.

The data sets, word vectors and checkpoints of HAtten are the release of Gu et al. 2022. The layout of its
Google Drive folder is unknown: `matches` finds a data set by its name, and `counts` (their Table 1) show
whether it is the right one. Approximate sizes are from the authors' tutorial; only exact sizes are checked.

Open Research, DBLP and PubMed (Ren et al. 2014) are distributed by Citeomatic (Bhagavatula et al. 2018): as
single files in its bucket, which is tried first, and in one archive of about 75 GB. The MD5 is Anserini's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HATTEN_FOLDER = "https://drive.google.com/drive/folders/1QwQuJsBOGEESFTgl-7wWbqcig7vJNlQ2"
# The authors' repository contains ACL-200 as its example data set "custom".
HATTEN_REPOSITORY = "https://raw.githubusercontent.com/nianlonggu/Local-Citation-Recommendation/main"
DRIVE_FILE = "https://drive.google.com/uc?id="
ALLEN_AI = "https://s3-us-west-2.amazonaws.com/ai2-s2-research-public"
CITEOMATIC = f"{ALLEN_AI}/citeomatic-2018-02-12"

CORPUS_FILES = ("papers.json", "contexts.json", "train.json", "val.json", "test.json")
ANY_ARCHIVE = ("*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.tar.bz2", "*.tar.xz")


@dataclass(frozen=True)
class Release:
    """One download: where its files are published and how to check them."""

    description: str
    addresses: tuple[str, ...]
    """Tried in order: a file, a Google Drive folder, or a web folder with `files` (ends in a slash)."""
    folder: str
    """Folder of its files, relative to the cache."""
    files: tuple[str, ...]
    """Relative paths; text files may be gzipped."""
    archives: tuple[str, ...] = ()
    """Name patterns of archives that contain the files; empty if the files are published individually."""
    matches: str = ""
    """Pattern of its paths in a folder or archive with several releases."""
    size: int | None = None
    """Exact size in bytes of the single file at the address."""
    approximate_size: int | None = None
    sha256: str | None = None
    """Checksum of the archive."""
    md5: str | None = None
    """Checksum of the gzipped file in the archive."""
    json_lines: bool = False
    """The files are JSON lines, whatever their names."""
    counts: dict[str, int] = field(default_factory=dict)
    """Published number of papers, and of contexts per split."""

    def folder_in(self, cache_dir: str | Path) -> Path:
        """The folder of its files in the given cache."""
        return Path(cache_dir).expanduser() / self.folder

    @property
    def download_size(self) -> str:
        """The size as text."""
        if self.size is not None:
            return f"{self.size / 1e6:,.0f} MB"
        if self.approximate_size is not None:
            return f"about {self.approximate_size / 1e6:,.0f} MB"
        return "size unknown"


def _corpus(name: str, title: str, matches: str, counts: tuple[int, int, int, int], *more: str) -> Release:
    return Release(
        description=f"{title}, data set",
        addresses=(HATTEN_FOLDER, *more),
        folder=f"published/{name}",
        files=CORPUS_FILES,
        archives=ANY_ARCHIVE,
        matches=matches,
        counts=dict(zip(("papers", "train", "val", "test"), counts, strict=True)),
    )


def _citeomatic(name: str, title: str) -> Release:
    return Release(
        description=f"{title}, citation graph of Citeomatic",
        addresses=(f"{CITEOMATIC}/comparison/{name}/", f"{CITEOMATIC}.tar.gz"),
        folder=f"published/citeomatic-{name}",
        files=("corpus.json",),
        archives=("citeomatic-2018-02-12.tar.gz",),
        matches=f"comparison/{name}/",
        json_lines=True,
    )


_ACL_EXAMPLE = f"{HATTEN_REPOSITORY}/data/custom/"
_TASKS = ("cite", "cocite", "coview", "coread")

RELEASES = {
    "acl200": _corpus(
        "acl200", "ACL-200", r"(?<![a-z])acl(?![a-z])", (19_776, 30_390, 9_381, 9_585), _ACL_EXAMPLE
    ),
    "fulltextpeerread": _corpus(
        "fulltextpeerread", "FullTextPeerRead", r"peer[-_ ]?read", (4_837, 9_363, 492, 6_814)
    ),
    "refseer": _corpus("refseer", "RefSeer", r"ref[-_ ]?seer", (624_957, 3_521_582, 124_911, 126_593)),
    "arxiv": _corpus("arxiv", "arXiv", r"arxiv", (1_661_201, 2_988_030, 112_779, 104_401)),
    "glove": Release(
        description="GloVe 6B, word vectors",
        addresses=("https://nlp.stanford.edu/data/glove.6B.zip",),
        folder="vectors",
        files=("glove.6B.200d.txt",),
        archives=("glove.6B.zip",),
        size=862_182_613,
        sha256="617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    "reference-vectors": Release(
        description="word vectors of the HAtten release",
        addresses=(f"{DRIVE_FILE}1T2R1H8UstSILH_JprUaPNY0fasxD2Txr",),
        folder="vectors",
        files=("unigram_embeddings_200dim.pkl", "vocabulary_200dim.pkl"),
        archives=("model.zip",),
        approximate_size=295_000_000,
    ),
    "hatten-acl200": Release(
        description="HAtten trained on ACL-200",
        addresses=(f"{DRIVE_FILE}13J5mtRg6t3Lcsn6fCdLJ1pZhtXnpREEq",),
        folder="checkpoints/hatten-acl200",
        files=("model_batch_35000.pt",),
        approximate_size=337_000_000,
    ),
    "scibert-acl200": Release(
        description="SciBERT reranker trained on ACL-200",
        addresses=(f"{DRIVE_FILE}1DmSw6HR2W4fbUKp24K1_TREPhlLiQuEb",),
        folder="checkpoints/scibert-acl200",
        files=("model_batch_91170.pt",),
        approximate_size=1_320_000_000,
    ),
    "mdcr": Release(
        description="MDCR, citation recommendation in 19 fields (Medić and Šnajder 2022)",
        addresses=("https://takelab.fer.hr/data/mdcr/",),
        folder="published/mdcr",
        files=("mdcr_val.json", "mdcr_test.json", "mdcr_val_data.jsonl", "mdcr_test_data.jsonl"),
        approximate_size=500_000_000,
    ),
    "open-research": Release(
        description="Open Research of 2017-02-21, citation graph",
        addresses=tuple(
            f"{ALLEN_AI}/{folder}2017-02-21/papers-2017-02-21.zip"
            for folder in ("open-corpus/", "open-corpus-archive/", "")
        ),
        folder="published/open-research",
        files=("papers-2017-02-21.json",),
        archives=("papers-2017-02-21.zip",),
        md5="f35c40992e94b458db73fa030a79844b",
        json_lines=True,
    ),
    "citeomatic-dblp": _citeomatic("dblp", "DBLP"),
    "citeomatic-pubmed": _citeomatic("pubmed", "PubMed"),
    "scidocs": Release(
        description="SciDocs, citations and user activity (Cohan et al. 2020)",
        addresses=("https://ai2-s2-research-public.s3-us-west-2.amazonaws.com/specter/scidocs/",),
        folder="published/scidocs",
        files=(
            *(f"{task}/{split}.qrel" for task in _TASKS for split in ("val", "test")),
            "paper_metadata_view_cite_read.json",
        ),
    ),
}
