"""How well the small networks alone rank the citations of drafts among their authors' bibliographies.

    citerec data drafts list=library/builtin/drafts-unseen.yaml output=DRAFTS
    python reproduce/networks.py DRAFTS minilm library/builtin/networks outputs/networks ...

Folders are those of `citerec model networks`; `minilm` is all-MiniLM-L6-v2 as it is. Prints R@10 / MRR of
each encoder, with abstracts and by titles, and, with abstracts, of its sum with the cross-encoder (z-scores
of the first PAIRS_DEPTH papers). These are means over the drafts of part `check` with at most MOST papers; 20
citations of each are asked, with the passage alone.
"""

import logging
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from citerec.base.errors import InputError
from citerec.datasets.published.drafts import LIST, read_list
from citerec.hatten.biencoder.model import BiEncoder
from citerec.library.benchmark.collection import MaskedDraft, find_drafts, make_library, quiet, sample_queries
from citerec.rerank.cross_encoder.export import write_networks
from citerec.rerank.ranker.training import PAIRS_DEPTH
from citerec.retrieval.arrays import Floats
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import MINILM, ArticleConfig, Lengths

CHECK, CITATIONS, MOST = "check", 20, 320
LENGTHS = Lengths(citing_title=0)
PLAIN = ArticleConfig("minilm", MINILM.hub, max_tokens=184, layout="lengths", lengths=LENGTHS, markers="mask")
ENCODER, TITLES, SUM = "encoder", "encoder by titles", "with the cross-encoder"


def z_scores(scores: Floats) -> Floats:
    """Scores [n] less their mean, divided by their deviation."""
    return (scores - scores.mean()) / max(scores.std(), 1e-6)


def measure(masked: MaskedDraft, all_networks: list[Networks]) -> list[dict[str, tuple[float, float]]] | None:
    """R@10 and MRR of a draft by networks and way of ranking; None if its bibliography is too large."""
    with TemporaryDirectory() as place:
        library = make_library(masked.bibs, Path(place) / "library")
        corpus, rows = library.corpus, np.flatnonzero(library.corpus.is_candidate)
        if len(rows) > MOST:
            return None
        asked, cited, beside = sample_queries(masked, library, CITATIONS)
        queries, measures = Queries.from_list(corpus, asked), []
        for networks in all_networks:
            reader, ranks = networks.reader, defaultdict[str, list[int]](list)
            passages, bare = reader.queries(queries), reader.papers(corpus, rows, np.zeros(len(rows), bool))
            whole = reader.papers(corpus, rows)
            vectors = np.array([vector for vector, _ in networks.read(passages)])
            for way, papers in ((ENCODER, whole), (TITLES, bare)):
                encoded = networks.encode(rows.astype(np.uint64), papers)
                for number, scores in enumerate(vectors @ encoded.vectors.T.astype(np.float32)):
                    own = np.isin(rows, cited[number])
                    scores[np.isin(rows, [*beside[number]]) & ~own] = -np.inf
                    ranks[way].append(1 + int((scores > scores[own].max()).sum()))
                    if way == ENCODER and networks.scores_pairs:
                        first = np.argsort(-scores, kind="stable")[:PAIRS_DEPTH]
                        first = first[np.isfinite(scores[first])]
                        texts = [reader.shortened(papers[row].subwords) for row in first.tolist()]
                        pairs = networks.scores([reader.pair(passages[number], text) for text in texts])
                        scores[first] = 1e3 + z_scores(scores[first]) + z_scores(pairs)  # before all others
                        ranks[SUM].append(1 + int((scores > scores[own].max()).sum()))
            arrays = {way: np.array(values) for way, values in ranks.items()}
            measures.append(
                {way: (float(np.mean(rank <= 10)), float(np.mean(1 / rank))) for way, rank in arrays.items()}
            )
        return measures


def main(drafts: str, *folders: str) -> None:
    """Print a row for each folder."""
    with TemporaryDirectory() as place:
        if "minilm" in folders:
            BiEncoder(ArticleEncoder.pretrained(PLAIN)).save(Path(place) / "plain")
            write_networks(Path(place) / "plain", None, Path(place) / "minilm")
        named = [Path(place) / folder if folder == "minilm" else Path(folder) for folder in folders]
        opened, rows = [Networks.open(folder) for folder in named], []
        for listed in read_list(Path(drafts, LIST)):
            if listed.part == CHECK and Path(drafts, listed.name).is_dir():
                with quiet(logging.ERROR):
                    [masked], _ = find_drafts(Path(drafts), names=[listed.name])
                    row = measure(masked, opened)
                rows += [] if row is None else [row]
    for number, folder in enumerate(folders):
        means = {way: np.mean([row[number][way] for row in rows], axis=0) for way in rows[0][number]}
        text = ", ".join(f"{way} {recall:.3f} / {mrr:.3f}" for way, (recall, mrr) in means.items())
        print(f"{folder}, {len(rows)} drafts: {text}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
