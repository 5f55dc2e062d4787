"""Options of the commands of a library; the first line of a docstring is a command's help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.base.settings import Settings, setting
from citerec.library import limits

SERVICES = ("openalex", "semanticscholar", "crossref", "arxiv", "datacite")
NO_SOURCE = "source is required, as in source=papers.bib: files of papers"
FORMATS = ("table", "json", "bibtex", "ris", "csl", "cite", "markdown")


@dataclass(frozen=True, kw_only=True)
class LibrarySettings(Settings):
    """Shared by all commands."""

    asks: ClassVar[bool] = False
    """whether the library may also be a source, which then gets a temporary library"""

    library: str
    """folder of the library; `library=` may be omitted in the first place (e.g. my-library)"""


@dataclass(frozen=True, kw_only=True)
class InfoSettings(LibrarySettings):
    """Show what a library contains."""

    merged: bool = False
    """list the records that were merged into others"""


@dataclass(frozen=True, kw_only=True)
class VerifySettings(LibrarySettings):
    """Read a whole library and tell whether a file is damaged."""


@dataclass(frozen=True, kw_only=True)
class AddSettings(LibrarySettings):
    """Add papers to a library."""

    positional: ClassVar[str] = "source"

    source: tuple[str, ...] = ()
    """files of papers, folders or patterns: BibTeX, RIS, NBIB, EndNote, CSL JSON, papers.json or JSON lines,
    plain or .gz (e.g. papers.bib)"""
    encode: bool = True
    """let the networks of the model read new papers now; false: citerec update or a server does it later"""
    separate: tuple[str, ...] = ()
    """keys or ids of records never to merge with others, not even by `update`; all: merge none"""
    fulltext: bool | None = None
    """read the PDFs that papers name, and those in Zotero's storage, now and after each change; false: stop
    doing so"""
    pdfs: tuple[str, ...] = ()
    """folders with further PDFs of the papers; needs fulltext=true"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pdfs and self.fulltext is not True:
            raise InputError("pdfs needs fulltext=true")


@dataclass(frozen=True, kw_only=True)
class BuildSettings(AddSettings):
    """Build a library from files of papers, or again from the files that it was built from."""

    source: tuple[str, ...] = ()
    """files of papers, folders or patterns: BibTeX, RIS, NBIB, EndNote, CSL JSON, papers.json or JSON lines,
    plain or .gz (e.g. papers.bib); empty, with overwrite: the library's own files, and its model"""
    model: str = ""
    """ranking model: folder written by citerec train or save, or hub id, of a static model or
    HAtten; or bm25; static: the built-in model without its networks; empty: the built-in model"""
    overwrite: bool = False
    """replace an existing library"""
    force: bool = False
    """build even if the library's own source files have lost more than a fifth of its papers"""
    storage: str = setting("memory", choices=("memory", "lance"))
    """memory, for up to two million papers, or lance: in LanceDB, of any size (docs/write/safety.md)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source and not self.overwrite:
            raise InputError(NO_SOURCE)


@dataclass(frozen=True, kw_only=True)
class RemoveSettings(LibrarySettings):
    """Remove papers from a library for good, or files with their papers."""

    positional: ClassVar[str] = "id"

    id: tuple[str, ...] = ()
    """paper ids or citation keys (e.g. smith2020)"""
    source: tuple[str, ...] = ()
    """source files or folders of the library; papers that other sources also contain stay"""
    force: bool = False
    """remove even if other sources have lost more than a fifth of the papers"""


@dataclass(frozen=True, kw_only=True)
class UpdateSettings(LibrarySettings):
    """Reread a library's source files: add new papers, replace changed ones, remove deleted ones."""

    force: bool = False
    """update even if this removes more than a fifth of the papers"""
    watch: bool = False
    """keep running, and reread whatever changes: files, folders, Zotero"""


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(LibrarySettings):
    """Shared by the commands that ask services."""

    yes: bool = False
    """send without asking; without it, a command that cannot ask only says what it would send"""
    services: tuple[str, ...] = setting(SERVICES[:4], choices=SERVICES)
    """services to ask, always in this order"""
    mailto: str = ""
    """your e-mail address, which the services ask for; empty: $CITEREC_MAILTO"""
    openalex_key: str = field(default="", repr=False)
    """key for OpenAlex; empty: $OPENALEX_API_KEY"""
    semanticscholar_key: str = field(default="", repr=False)
    """key for Semantic Scholar; empty: $S2_API_KEY"""
    max_age: int = 180
    """days after which a service is asked again"""


@dataclass(frozen=True, kw_only=True)
class EnrichSettings(ServiceSettings):
    """Fill in abstracts, DOIs, years and venues that a library lacks, from services or files."""

    from_: str = ""
    """instead of services: a file, folder or pattern as for source, another library, or Retraction Watch's
    CSV; adds no papers (e.g. works.jsonl.gz)"""
    retractions: bool = False
    """also ask OpenAlex and Crossref whether papers that lack nothing were retracted"""
    format: str = setting("table", choices=("table", "json"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.services and not self.from_:
            raise InputError(f"services is empty; choose {', '.join(SERVICES[:-1])} or {SERVICES[-1]}")


@dataclass(frozen=True, kw_only=True)
class QuestionSettings(LibrarySettings):
    """Shared by the commands that ask."""

    asks: ClassVar[bool] = True

    library: str
    """folder of the library, a file of papers or zotero (e.g. papers.bib); `library=` may be omitted in the
    first place"""


@dataclass(frozen=True, kw_only=True)
class RankingSettings(QuestionSettings):
    """Shared by the commands that recommend papers."""

    reranker: str | None = None
    """folder of a cross-encoder that reranks the top papers"""


@dataclass(frozen=True, kw_only=True)
class AskSettings(RankingSettings):
    """Recommend papers to cite in a passage."""

    positional: ClassVar[str] = "text"

    text: str
    """the passage, with [CITE] at the missing citation, or a key, or authors and year; -: read stdin
    (e.g. "Adam [CITE] is usual")"""
    title: str = ""
    """title of the paper being written"""
    abstract: str = ""
    """abstract of the paper being written"""
    k: int = setting(10, least=1)
    """number of papers to recommend"""
    years: str | None = None
    """publication years: 2015-2020, 2015-, -2020 or 2019"""
    venue: str | None = None
    """venue of the papers, or part of its name"""
    collection: str | None = None
    """collection within the library"""
    exclude: tuple[str, ...] = ()
    """paper ids or citation keys to exclude"""
    only: tuple[str, ...] = ()
    """paper ids or citation keys to restrict to"""
    format: str = setting("table", choices=FORMATS)
    explain: bool = False
    """show the features behind the scores"""


@dataclass(frozen=True, kw_only=True)
class SearchSettings(QuestionSettings):
    """Find papers of a library by title, authors, year or key."""

    positional: ClassVar[str] = "words"

    words: tuple[str, ...]
    """words of the title, authors, year, venue or key, or their beginnings (e.g. kingma 2015 adam)"""
    k: int = setting(10, least=1)
    """maximum number of papers"""
    format: str = setting("table", choices=FORMATS)


@dataclass(frozen=True, kw_only=True)
class PaperSettings(LibrarySettings):
    """Show what a paper's PDF cites, and which PDFs cite it, with the sentences."""

    positional: ClassVar[str] = "key"

    key: str
    """key or id of the paper (e.g. lee2003)"""
    format: str = setting("text", choices=("text", "json"))


@dataclass(frozen=True, kw_only=True)
class MissingSettings(LibrarySettings):
    """List works that several of your PDFs cite and the library lacks."""

    least: int = setting(2, least=1)
    """least number of PDFs that cite a work"""
    k: int = setting(20, least=1)
    """maximum number of works"""
    format: str = setting("text", choices=("text", "bibtex", "ris", "csl"))


@dataclass(frozen=True, kw_only=True)
class DraftFiles(LibrarySettings):
    """Shared by the commands that read drafts."""

    bib: tuple[str, ...] = ()
    """a draft's .bib files; empty: those that it names, else those beside it"""
    root: str = ""
    """folder from which a draft's inputs may be read; empty: the draft's own"""

    @property
    def draft_files(self) -> tuple[Path | None, list[Path]]:
        """The root, and the .bib files."""
        return expand_user(self.root) if self.root else None, [*map(expand_user, self.bib)]


@dataclass(frozen=True, kw_only=True)
class TexSettings(DraftFiles):
    """Shared by the commands whose draft is required."""

    positional: ClassVar[str] = "tex"

    tex: str
    """the draft, in LaTeX, Markdown, Typst, Org, Word or LibreOffice (e.g. paper.tex)"""


@dataclass(frozen=True, kw_only=True)
class DraftSettings(TexSettings, RankingSettings):
    """Suggest papers for the missing citations of a draft: \\cite{?}, \\citep{TODO}, [@?] or [CITE]."""

    k: int = setting(5, least=1)
    """number of papers per missing citation"""
    format: str = setting("text", choices=("text", "json"))
    fill: str = ""
    """new file (or folder, for a draft with inputs) for a copy that cites the top papers, with all files that
    it needs"""
    pages: bool = False
    """copies name the page of the passage that supports the sentence, if the paper's PDF has one"""
    citations: str = setting("zotero", choices=("zotero", "plain"))
    """copies of Word and LibreOffice documents have fields of Zotero, or plain text and a .bib file"""
    sure: float = setting(0.6, most=1)
    """least probability to fill a citation, 0.9 for a paper that is cited nearby; other citations are left,
    with a comment that names the best papers; 0: fill all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pages and not self.fill:
            raise InputError("pages needs fill=FILE, a copy whose citations name pages")


@dataclass(frozen=True, kw_only=True)
class CheckSettings(TexSettings):
    """Check a draft's citations: unknown keys, papers under two keys, published preprints, unused entries."""

    library: str = ""
    """library, file of papers or zotero that knows keys and published versions, too; empty: only the draft's
    bibliography"""
    format: str = setting("text", choices=("text", "json"))
    strict: bool = False
    """exit with 1 if there are findings, entries that are never cited aside"""
    references: bool = False
    """also report cited entries that contradict themselves or the library's records (citerec references)"""


@dataclass(frozen=True, kw_only=True)
class DraftReferences(DraftFiles):
    """Shared by the commands that say whether the references of a draft are right."""

    library: str = ""
    """library, file of papers or zotero whose records are compared; those filled in by services confirm"""
    table: tuple[str, ...] = ()
    """works to compare with: dumps of Crossref, OpenAlex or arXiv, files of papers, Retraction Watch's CSV;
    turned once into an index in the cache (e.g. works.jsonl.gz)"""


@dataclass(frozen=True, kw_only=True)
class ReferencesSettings(DraftReferences, ServiceSettings):
    """Check whether references are real and stated correctly: confirmed, contradicted or unknown."""

    positional: ClassVar[str] = "file"

    file: str = ""
    """a bibliography (.bib, .ris, CSL JSON ...) or a draft; empty: all papers of the library"""
    services: tuple[str, ...] = setting((), choices=SERVICES)
    """services to ask, always in this order; empty: none"""
    format: str = setting("text", choices=("text", "json"))
    strict: bool = False
    """exit with 1 if an entry is contradicted or retracted"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file and not self.library:
            raise InputError("give a bibliography, a draft or library=, as in citerec references refs.bib")


@dataclass(frozen=True, kw_only=True)
class ReportSettings(DraftReferences, TexSettings):
    """Report on the references of a draft before it is submitted: numbers, ages, venues, what to mend."""

    author: tuple[str, ...] = ()
    """family names of the draft's authors, to count their own works (e.g. 'author=[Lind,Moss]')"""
    format: str = setting("text", choices=("text", "json"))


@dataclass(frozen=True, kw_only=True)
class ServeSettings(RankingSettings):
    """Serve a library over HTTP: a page for people, JSON for programs."""

    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0: all addresses, for access from other machines"""
    port: int = setting(8000, most=65535)
    """port to listen on; 0: any free port"""
    allowed_hosts: tuple[str, ...] = ()
    """host names of the server, or *.DOMAIN; requests for other names are refused (e.g. papers.lab)"""
    watch: bool = False
    """reread the library's sources whenever they change: files, folders, Zotero"""
    threads: int = setting(limits.THREADS, least=1)
    """worker threads"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for host in self.allowed_hosts:
            if "*" in host[1:] or (host.startswith("*") and not host.startswith("*.")):
                raise InputError(f"allowed_hosts={host}: give whole names, or *.DOMAIN for all of a domain")
        if not self.host.strip():  # sockets take it for all addresses
            raise InputError("host is empty; give an address, or 0.0.0.0 for all")


@dataclass(frozen=True, kw_only=True)
class McpSettings(RankingSettings):
    """Serve a writing assistant that starts this command: MCP over stdin and stdout."""


@dataclass(frozen=True, kw_only=True)
class LspSettings(LibrarySettings):
    """Serve an editor that starts this command: completes, checks and shows citations (LSP over stdin)."""

    pages: bool = False
    """actions cite with the page of the passage that supports the sentence, if the paper's PDF has one"""
    abstracts: bool = False
    """write abstracts into new entries of the .bib file"""
    references: bool = False
    """report cited entries that contradict themselves or the library's records"""
    watch: bool = False
    """reread the library's sources whenever they change: files, folders, Zotero"""
