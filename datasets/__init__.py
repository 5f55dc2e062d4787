"""Data sets: records, and the store prepared from them.

records     papers, contexts and queries            prepare           writes them to a store, once
corpus      the store, mapped into memory           columns           its columns of texts and numbers
tokenize    splits texts into words                 word_statistics   counts of words in a collection
generate    the demo corpus                         splitting         papers to splits, without leaks
files/      files of records: our JSON, BEIR        published/        addresses, checksums and downloads
building/   corpora from full texts and contexts    inspect           reports on a corpus
citations/  citation graphs, as corpora
"""
