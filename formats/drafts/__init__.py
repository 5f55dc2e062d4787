"""Languages of documents and drafts.

language        what a language defines: citations and missing ones, comments and code, inputs, sections
latex, markdown, typst, org, office        one each, office two; languages finds that of a file
bibliographies  the files that a document names, and their entries
inputs          files that a document includes
latex_source    LaTeX with its macros expanded; latex_text converts it to plain text
"""
