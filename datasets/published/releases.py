"""Registry of downloads: addresses, sizes, checksums and files.

The data sets, word vectors and checkpoints of HAtten are the release of Gu et al. 2022. The layout of its
Google Drive folder is unknown: `matches` finds a data set by its name, and `counts` (their Table 1) show
whether it is the right one. Approximate sizes are from the authors' tutorial; only exact sizes are checked.

Data sets with `repositories` are built from these by a function of datasets.published.recipes; `digests` tell
whether the result is that of the registry.

Open Research, DBLP and PubMed (Ren et al. 2014) are distributed by Citeomatic (Bhagavatula et al. 2018): as
single files in its bucket, which is tried first, and in one archive of about 75 GB. The MD5 is Anserini's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from citerec.base.files import cache_folder
from citerec.datasets.published.repositories import GITHUB, Repository

PREFIX = "citerec"
"""What ids of data begin with."""
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
    repositories: tuple[Repository, ...] = ()
    """What the files are built from, in place of `addresses`."""
    recipe: str = ""
    """Module of datasets.published.recipes that builds them."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the uncompressed content of built files."""
    candidates: str = "all"
    """Papers to rank: all, or those with an abstract."""

    def folder_in(self, cache_dir: str | Path | None = None) -> Path:
        """The folder of its files in the given cache."""
        return cache_folder(cache_dir) / self.folder

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


def _built(recipe: str, description: str, folder: str, *repositories: Repository, **more: Any) -> Release:
    return Release(
        description,
        addresses=(),
        folder=f"published/{folder}",
        repositories=repositories,
        recipe=recipe,
        **({"files": CORPUS_FILES} | more),
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
_SCISUMM = ("Reference_XML/", "citing_sentences.json")
# The lists of at most 4 MB each, of conferences whose papers NeurIPS papers cite.
_LISTS = (
    *(f"/nips/nips{year}.json" for year in range(1987, 2019)),
    *(f"/icml/icml{year}.json" for year in range(2013, 2020)),
    *(f"/cvpr/cvpr{year}.json" for year in range(2013, 2020)),
    *(f"/iccv/iccv{year}.json" for year in (2013, 2015, 2017, 2019)),
    *(f"/eccv/eccv{year}.json" for year in (2018, 2020, 2022)),
    *(f"/iclr/iclr{year}.json" for year in (2013, 2014, 2017, 2018)),
    *(f"/acl/acl{year}.json" for year in (2021, 2022)),
    *(f"/naacl/naacl{year}.json" for year in (2021, 2022, 2024)),
    "/aistats/",
    "/colt/",
    "/colm/",
)
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
    "neurips2025-lcr": _built(
        "neurips",
        "what NeurIPS 2025 papers cite",
        "neurips2025-lcr",
        Repository(
            f"{GITHUB}/djroytburg/10718peerread",
            "50b2a042a1b6bbef3d1257c9bf80174e8801e20b",
            ("/output/neurips_*/reviews/", "/output/neurips_2025_full/parsed_pdfs/*.md"),
        ),
        Repository(f"{GITHUB}/papercopilot/paperlists", "33f9884e652f05a768d2f216534d7f1e446a0cf7", _LISTS),
        counts={"papers": 48_018, "train": 16_947, "val": 2_359, "test": 1_170},
        digests={
            "papers.json": "10a863b73843c8eabad95c655f62a8f0cca4c3c856d88aba601785551e5a4a7a",
            "contexts.json": "b64804553031a8cfee00c6e16c2d720e8a77c4a8fa4f3d8cd52552bff5442cec",
            "test.json": "887b015ec37a4d265b1bcb3150a740a61dd1bed908ac7a49beee9614b6dfb6a3",
        },
        candidates="abstract",
        approximate_size=200_000_000,
    ),
    "acl-scisumm-lcr": _built(
        "scisumm",
        "sentences that cite papers of the ACL Anthology",
        "acl-scisumm-lcr",
        Repository(
            f"{GITHUB}/WING-NUS/scisumm-corpus",
            "1dd68e44df5c94cc767cc301cd04e61c52e4bf68",
            tuple(f"/data/Training-Set-2019/Task1/From-ScisummNet-2019/*/{file}" for file in _SCISUMM),
        ),
        counts={"papers": 6_526, "train": 10_136, "val": 1_455, "test": 2_422},
        digests={
            "papers.json": "44e2db8189dd5f2d3cd5e073436e95758db326bd7675b3d6683b2606e1f3f7b6",
            "contexts.json": "ff8616c151f6cfbb7e9a748170ca21d968cf5040fd425ea314e4bcef62bd78d9",
            "test.json": "28e494fa95e7dc23f3e2a82aa4ad86b0e5f2291112328597f7a11ad6860740d2",
        },
        candidates="abstract",
        approximate_size=100_000_000,
    ),
    "crops-lcr": _built(
        "crops",
        "what biology papers cite, mostly known by title",
        "crops-lcr",
        Repository(
            f"{GITHUB}/petermr/tigr2ess",
            "9612323fd84d69053c1477e4a224f4b85d4a5f4f",
            ("/crops/*/corpus/*/fulltext.xml",),
        ),
        counts={"papers": 140_321, "train": 191_571, "val": 6_601, "test": 8_504},
        digests={
            "papers.json": "214b703b8671fb283933efa6fc1eac275d94cb80939e183ad763aaf38688865e",
            "contexts.json": "a9cff74e82c4f57545d127dd5da486508b3289df1ab6687495ba381bb44ed7e8",
            "test.json": "bf8272f63161f471185fadeb83fef876c1d417322033dcf263b9b4ee83d2a574",
        },
        approximate_size=150_000_000,
        files=(*CORPUS_FILES, *(f"{split}_named.json" for split in ("train", "val", "test"))),
    ),
    "csfcube": _built(
        "csfcube",
        "CSFCube, facets of similarity (Mysore et al. 2021)",
        "csfcube",
        Repository(f"{GITHUB}/iesl/CSFCube", "7ffe012c1d92c470f185fc086086caf5b8e05ef3", ("/*",)),
        approximate_size=20_000_000,
        files=(
            "evaluation_splits.json",
            "abstracts-csfcube-preds.jsonl",
            *(f"test-pid2anns-csfcube-{facet}.json" for facet in ("background", "method", "result")),
        ),
    ),
    "vispub": _built(
        "vispub",
        "papers of IEEE VIS 1990-2018 and their citations",
        "vispub",
        Repository(
            f"{GITHUB}/skeggib/ResearchCareerVisualization",
            "3320a902e7a1166f2c22b81834ba707b8972fc96",
            ("/data/",),
        ),
        digests={
            "papers.jsonl": "f7a59ae977bad3fba3e0af4045624858620302f4faba15ce77694bf7dcd37c9a",
            "queries.json": "067fa1605da578203b1c1ec763e32ff802abfeff46baa7a4da075709faf8a98a",
        },
        approximate_size=4_000_000,
        files=("papers.jsonl", "queries.json"),
    ),
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
