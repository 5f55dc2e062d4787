"""Round trips from source files to the prepared store; Ragged against plain lists."""

import gzip
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citerec.base.errors import DamagedFile, InputError
from citerec.datasets.columns import Column, decode_text, write_texts
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.tokenize import TOKENIZERS

IDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "Cc", "Cs"]), min_size=1, max_size=5)
TEXTS = st.text(st.sampled_from("ab .\u00e9\u4e2d'-\n7") | st.characters(codec="utf-8"), max_size=30)
FIELDS = st.sampled_from(["math", "art", "\u00e9t\u00e9", ""])
Source = dict[str, Any]


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Files of a small corpus by stem."""
    ids = draw(st.lists(IDS, min_size=3, max_size=8, unique=True))
    papers = {}
    for paper in ids:
        papers[paper] = {
            "title": "t" + draw(TEXTS),
            "abstract": draw(TEXTS),
            "year": draw(st.none() | st.integers(0, 2100)),
            "area": draw(st.none() | FIELDS | st.lists(FIELDS, max_size=3)),
        }
    papers[ids[0]] |= {"abstract": "an abstract", "area": "math"}
    split_of = {paper: draw(st.sampled_from(["train", "val", "val_more", "test"])) for paper in ids}
    source: Source = {"papers": papers, "contexts": {}}
    for i in range(draw(st.integers(1, 8))):
        citing, cited = (
            draw(st.sampled_from(ids)),
            draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True)),
        )
        text = f"{draw(TEXTS)} x TARGETCIT{draw(TEXTS)}OTHERCIT".replace("\x00", "")
        source["contexts"][f"c{i}"] = {"masked_text": text, "citing_id": citing, "refid": cited[0]}
        source.setdefault(split_of[citing], []).append({"context_id": f"c{i}", "positive_ids": cited})
    return source


def write(folder: Path, source: Source, zipped: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for stem, content in source.items():
        data = json.dumps(content).encode()
        (folder / f"{stem}.json{'.gz' * zipped}").write_bytes(gzip.compress(data) if zipped else data)
    return folder


SPLITS = ["train", "val", "val_more", "test"]


@settings(max_examples=15)
@given(sources(), st.booleans(), st.sampled_from(sorted(TOKENIZERS)), st.sampled_from(["all", "abstract"]))
def test_round_trip(source: Source, zipped: bool, tokenizer: str, candidates: str) -> None:
    with TemporaryDirectory() as place:
        folder = write(Path(place) / "source", source, zipped)
        corpus = open_corpus(
            folder,
            None,
            Path(place) / "cache",
            SPLITS,
            field="area",
            tokenizer=tokenizer,
            candidates=candidates,
        )
        check_fields(corpus, source)
        check(corpus, source, tokenizer, candidates)


def check(corpus: Corpus, source: Source, tokenizer: str, candidates: str) -> None:
    papers, contexts = source["papers"], source["contexts"]
    assert list(corpus.paper_ids) == list(papers) and list(corpus.context_ids) == list(contexts)
    assert list(corpus.titles) == [paper["title"] for paper in papers.values()]
    assert corpus.abstracts[:] == [paper["abstract"] for paper in papers.values()]
    assert list(corpus.context_texts) == [context["masked_text"] for context in contexts.values()]
    assert corpus.years.tolist() == [paper["year"] or 0 for paper in papers.values()]
    assert [corpus.paper_ids[row] for row in corpus.citing] == [c["citing_id"] for c in contexts.values()]
    has_abstract = [bool(paper["abstract"].strip()) or candidates == "all" for paper in papers.values()]
    assert corpus.is_candidate.tolist() == has_abstract
    assert all(corpus.paper_row(paper) == row for row, paper in enumerate(papers))

    tokenize = TOKENIZERS[tokenizer]
    train = {query["context_id"] for query in source.get("train", [])}
    counts: Counter[str] = Counter()
    for texts, tokens, counted in (
        (corpus.titles, corpus.title_tokens, lambda _: True),
        (corpus.abstracts, corpus.abstract_tokens, lambda _: True),
        (corpus.context_texts, corpus.context_tokens, lambda row: corpus.context_ids[row] in train),
    ):
        assert [[corpus.words[i] for i in row] for row in tokens] == [tokenize(text) for text in texts]
        for row, text in enumerate(texts):
            counts.update(dict.fromkeys(tokenize(text), 0))
            if counted(row):
                counts.update(tokenize(text))
    assert corpus.words == sorted(counts, key=lambda word: (-counts[word], word))
    assert corpus.word_counts.tolist() == [counts[word] for word in corpus.words]

    assert list(corpus.splits) == [split for split in SPLITS if split in source]
    for name, split in corpus.splits.items():
        assert [corpus.context_ids[row] for row in split.contexts] == [q["context_id"] for q in source[name]]
        result = [[corpus.paper_ids[row] for row in rows] for rows in split.positives]
        assert result == [query["positive_ids"] for query in source[name]]
    seen = {paper for query in source.get("train", []) for paper in query["positive_ids"]}
    assert [corpus.paper_ids[row] for row in np.flatnonzero(corpus.seen)] == [p for p in papers if p in seen]


def check_fields(corpus: Corpus, source: Source) -> None:
    areas = [paper["area"] for paper in source["papers"].values()]
    of_paper = [{area} if isinstance(area, str) else set(area or []) for area in areas]
    names = set().union(*of_paper) - {""}
    assert set(corpus.field_names) == names and len(corpus.field_names) == len(names)
    for wanted in ([name] for name in names):
        assert corpus.in_fields(wanted).tolist() == [bool(own & set(wanted)) for own in of_paper]
    assert corpus.in_fields(sorted(names)).tolist() == [bool(own - {""}) for own in of_paper]


def test_a_field_that_no_paper_has(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    for row, (paper, name) in enumerate(zip(papers, "aababcdefgzz", strict=True)):
        papers[paper]["venue"] = ["b", name] if row % 2 else name
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    with pytest.raises(InputError, match=r"papers have no fields; set data\.field=KEY"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache").in_fields(["a"])
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", field="venue")
    with pytest.raises(
        InputError, match=r"no paper has the field 'B'; choose from 'b', 'a', 'z', .* and 3 more"
    ):
        corpus.in_fields(["a", "B"])


def test_columns_are_mapped_not_read(tiny_corpus: Corpus) -> None:
    for values in (tiny_corpus.context_tokens.values, tiny_corpus.years, tiny_corpus.splits["test"].contexts):
        base: Any = values
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap) and not values.flags.writeable


def test_text_columns_index_as_lists_do(tiny_corpus: Corpus) -> None:
    titles = list(tiny_corpus.titles)
    assert tiny_corpus.titles[-1] == titles[-1] and tiny_corpus.titles[2:7:2] == titles[2:7:2]
    assert tiny_corpus.titles[np.int64(3)] == titles[3]
    with pytest.raises(IndexError):
        tiny_corpus.titles[len(titles)]


def test_the_error_for_an_unknown_split_lists_the_splits(tiny_corpus: Corpus) -> None:
    assert tiny_corpus.split("test") is tiny_corpus.splits["test"]
    with pytest.raises(InputError, match="no split 'dev'; choose from train, val, test"):
        tiny_corpus.split("dev")
    with pytest.raises(InputError, match="no split 'val/3'; choose from train, val, test"):
        tiny_corpus.split("val/3")


def test_a_split_has_two_halves_without_a_common_citing_paper(demo_corpus: Corpus) -> None:
    whole, halves = demo_corpus.split("train"), [demo_corpus.split(f"train/{half}") for half in (1, 2)]
    item, other = (set(demo_corpus.citing[half.contexts].tolist()) for half in halves)
    assert not item & other and 0 <= len(item) - len(other) <= 1
    cited = {int(row): papers.tolist() for row, papers in zip(whole.contexts, whole.positives, strict=True)}
    result = [zip(half.contexts.tolist(), half.positives, strict=True) for half in halves]
    assert {row: papers.tolist() for half in result for row, papers in half} == cited


def test_many_batches_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_source: Path) -> None:
    monkeypatch.setattr("citerec.datasets.columns.BATCH_ROWS", 5)
    monkeypatch.setattr("citerec.datasets.columns.CHUNK", 7)
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=SPLITS)
    source = {stem: json.loads((tiny_source / f"{stem}.json").read_text()) for stem in ("papers", "contexts")}
    source |= {split: json.loads((tiny_source / f"{split}.json").read_text()) for split in corpus.splits}
    check(corpus, source, "default", "abstract")
    assert corpus.titles[5] == list(source["papers"].values())[5]["title"]


@pytest.mark.parametrize("file", ["values", "offsets"])
def test_damage_of_a_column_is_told(tmp_path: Path, file: str) -> None:
    texts = ["a", "", "caf\u00e9", "d" * 70]
    write_texts(tmp_path, "titles", texts)
    path = tmp_path / f"titles.{file}.npy"
    whole = path.read_bytes()
    cut = [whole[:end] for end in range(len(whole))]
    places = [(place, byte) for place in range(len(whole)) for byte in (9, 255)]
    other = [bytes([*whole[:place], byte, *whole[place + 1 :]]) for place, byte in places]
    for content in [*cut, *other]:
        path.write_bytes(content)
        try:
            column = Column(tmp_path, "titles", decode_text)
            assert [*column] == column[:] and len(column) == len(texts) and content not in cut
        except (DamagedFile, ValueError) as error:
            assert "\n" not in str(error).strip()


@pytest.mark.parametrize("damage", ["missing file", "short file", "no manifest", "other version", "no JSON"])
def test_an_incomplete_store_is_not_opened(tiny_corpus: Corpus, damage: str) -> None:
    manifest = tiny_corpus.path / "store.json"
    years = tiny_corpus.path / "years.npy"
    if damage == "missing file":
        years.unlink()
    elif damage == "short file":
        years.write_bytes(years.read_bytes()[:-1])
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "other version":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": -1}))
    else:
        manifest.write_text("[")
    with pytest.raises(InputError, match="not a prepared store"):
        Corpus(tiny_corpus.path)
