"""Documents of word processors, read as text with citations in Pandoc's form, and written back.

text            the text of a document, its places in the XML, and the file with other text there
fields          citations of Zotero: what its fields hold
language        what a language of documents tells of both; word, libreoffice: their XML
"""
