"""Entries of bibliographies: one form between all formats that are read (sources) and written (export).

names   of people and institutions      item    a work in CSL's types and variables
latex   text in LaTeX and back          bibtex  items as BibTeX, and back
"""
