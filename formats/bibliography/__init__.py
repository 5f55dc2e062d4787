"""Bibliographies: one form, `item`, between all formats that are read (reading/) and written.

paper        a paper of a library: its fields cleaned, records merged
item         a work in CSL's types and variables (tables)
latex        text in LaTeX and back
attachments  PDF files that entries name
bibtex, csl, ris  items in these formats, and back
references   papers as BibTeX, RIS and CSL JSON
neighbours   a new entry of a .bib file, written and placed like the others
"""
