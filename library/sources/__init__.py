"""Sources of a library: files of papers, and Zotero.

readers        recognises and reads files of all formats
zotero         as a source, and as the place where papers are saved
zotero_places  names of its sources, and where it is      zotero_api       the program, or zotero.org
zotero_database  its database: items, PDFs, what the user marked
"""
