"""Full texts of a library's papers: PDFs, what was read of them, passages; and why a paper is recommended.

files      where the PDFs of papers are               reading      reads PDFs in processes of their own
refresh    reads what is new, forgets what is gone    store        keeps what was read, compressed
passages   cuts texts into passages                   index        finds passages by words and by vectors
evidence   passages that fit a question or a claim    citations    what the texts cite, and in which sentences
links      which papers entries of references are     quotations   pages and quoted words of a citation
explanation  the name, the sentence or the citing sentence that says why
"""

FOLDER, DATABASE = "fulltexts", "texts.sqlite"
"""Folder of a library's full texts, and the file in it that holds them."""
