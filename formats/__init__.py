"""What people's files hold: bibliographies, drafts and articles, read and written without NumPy.

identifiers    DOIs, arXiv ids, PubMed ids and years, in the form that is compared
names          names of people and institutions
letters        texts and titles reduced to the letters that are compared
same_work      which records describe the same work
documents      records of a full text: metadata, paragraphs with citation spans, references
latex_text     LaTeX as plain text
json_lines     JSON lines, validated against a layout
bibliography/  BibTeX, CSL, RIS and other exports, in and out
drafts/        LaTeX, Markdown, Typst, Org, Word, LibreOffice
articles/      JATS, TEI, PDF, JSON of S2ORC, unarXive and arXiv
"""
