"""Search by words: BM25, its postings and terms."""
