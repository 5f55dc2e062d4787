"""Sources of a library: files of papers, and Zotero.

finding          the files that names of sources stand for
readers          recognises and reads files of all formats
zotero_places    names of sources in Zotero, and where its database is
zotero_database  its items, PDFs, what the user marked
"""
