"""Stage 2: the learned ranker over features of candidates.

model     ranks candidates; linear scores them, confidence tells how sure it is
training  fits the weights to lists of candidates, variants of which leave out abstracts, names or contexts
features  all features; from words (texts, corpus_statistics), names and years near the mark (author_names),
          titles near the mark (paper_names) and passages that cite a candidate (citing_contexts)
"""
