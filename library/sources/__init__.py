"""Sources of a library: files of papers, and Zotero.

finding          the files that names of sources stand for; where Zotero's database is
readers          recognises and reads files of all formats
zotero_database  its items, PDFs, what the user marked
"""
