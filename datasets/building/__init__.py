"""Full texts with citations, and the contexts extracted from them (`citerec data build`).

documents      records of a paper: metadata, paragraphs with citation spans, references
readers        find and read files by format; documents that people write are read by formats.drafts
layouts        JSON lines in our own layout, arXiv's, S2ORC's and unarXive's
jats, tei      JATS and TEI documents; xml_documents parses them
pdf, layout    the text of PDF files, in reading order
catalogue      the papers of all files; resolves references to papers
markers        finds the citation markers in a text
contexts       cuts the text around citations, masks other markers and selects contexts
collection     writes the corpus of a collection, with a report
"""
