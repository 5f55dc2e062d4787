"""Full texts with citations, and the contexts extracted from them (`citerec data build`).

documents      records of a paper: metadata, paragraphs with citation spans, references
readers        find and read files by format; JSON lines in our own layout and S2ORC's
jats, tei      JATS and TEI documents; xml_documents parses them
latex          LaTeX documents; latex_source converts LaTeX to plain text
markdown       Markdown documents: Pandoc, R Markdown, Quarto, Manubot
catalogue      the papers of all files; resolves references to papers
markers        finds the citation markers in a text
contexts       cuts the text around citations, masks other markers and selects contexts
collection     writes the corpus of a collection, with a report
"""
