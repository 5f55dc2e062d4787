"""Sources of a library: files of papers.

readers  all formats, JSON            bibtex  BibTeX, BibLaTeX            exports  RIS, NBIB, EndNote
"""
