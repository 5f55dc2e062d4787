"""Full texts: JATS, TEI, PDF and JSON layouts, as records of formats.documents.

jats, tei        XML of publishers and GROBID; xml_documents parses it
pdf, pdf_layout  the text of PDF files, in reading order
layouts          JSON lines in our own layout, arXiv's, S2ORC's and unarXive's
markers          citation markers in a text
citing           lists of references of PDFs, and where their text cites them
"""
