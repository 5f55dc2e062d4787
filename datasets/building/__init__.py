"""Full texts with citations, and the contexts extracted from them (`citerec data build`).

readers        find and read files by format, in formats.articles and formats.drafts
catalogue      the papers of all files; resolves references to papers
contexts       cuts the text around citations, masks other markers and selects contexts
build          writes the corpus of a collection, with a report
"""
