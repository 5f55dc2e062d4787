"""Documents of word processors, read as text with citations in Pandoc's form, and written back.

package         the archive of a document, and copies with other parts
text            the text of a document, its places in the XML; other text is written there
fields          citations of Zotero: what its fields hold
language        what both have in common; word, libreoffice: their XML
"""
