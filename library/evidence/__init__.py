"""Full texts of a library's papers: their PDFs, what was read of them, and the passages that are searched.

files      where the PDFs of papers are
reading    reads PDFs in processes of their own, with limits
store      keeps what was read, compressed
passages   cuts texts into passages
index      finds passages by words and by vectors
vectors    further vectors, by the encoder of the library's model
"""
