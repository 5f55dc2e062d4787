"""BM25 that reads what rankers read of a draft: authors, years, and what the draft cites elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from citerec.datasets.fulltext.catalogue import surname
from citerec.library.drafts.collection import Question
from citerec.library.drafts.reader import Draft
from citerec.library.memory.library import MemoryLibrary
from citerec.library.papers import LibraryPaper
from citerec.retrieval.base import Ranking

NAMED = "bm25_names"
"""Its name, as a model of benchmark=drafts."""
PRIOR = 0.2
"""Weight of a paper's citations elsewhere: the best by R@10 and MRR over 85 drafts of other authors than
those of the published lists (.394 / .203; without .359 / .193, without names and years .351 / .185)."""


def with_names(paper: LibraryPaper) -> LibraryPaper:
    """Add the surnames of the authors and the year to the text that BM25 reads."""
    words = [paper.abstract, *map(surname, paper.authors), str(paper.year or "")]
    return paper._replace(abstract=" ".join(filter(None, words)))


def count_citations(draft: Draft, known: Mapping[str, str], library: MemoryLibrary) -> Counter[int]:
    """Count the citations of each paper of the library; known: ids of papers by the draft's keys."""
    cited = ({known[key] for key in place.replaced if key in known} for place in draft.places)
    rows = (library.row(paper) for papers in cited for paper in papers)
    return Counter(row for row in rows if row is not None)


def add_prior(
    ranking: Ranking, question: Question, times: Mapping[int, int], library: MemoryLibrary
) -> Ranking:
    """Add PRIOR times the best score times log(1 + n) to the papers that n other citations cite."""
    own = {library.row(paper) for paper in question.targets}
    papers, scores = ranking.papers[0], ranking.scores[0].astype(np.float64)
    other = np.array([times.get(row, 0) - (row in own) for row in papers.tolist()])
    found = papers >= 0
    scores[found] += PRIOR * scores[found].max(initial=0) * np.log1p(other[found])
    order = np.argsort(-scores, kind="stable")
    return Ranking(papers[order][None], scores[order][None].astype(np.float32))
