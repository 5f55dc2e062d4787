"""Sources of a library: files of papers, and Zotero.

readers  all formats, JSON            bib_files        BibTeX, BibLaTeX
exports  RIS, NBIB, EndNote           zotero           from the program or its database
fields   of records in JSON           zotero_api, zotero_database, zotero_items
"""
