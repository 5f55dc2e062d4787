"""Stage 2: the learned ranker over features of candidates.

model     ranks candidates; linear scores them, networks rescore the first ones, confidence tells how sure
training  reads lists of candidates, and fits the weights to them
features  the table of features; from words (texts, corpus_statistics), names and years near the mark
          (author_names), titles near the mark (paper_names) and contexts that cite a paper (citing_contexts)
"""
