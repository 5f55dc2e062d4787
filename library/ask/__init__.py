"""Asking a library: which papers a passage should cite, and why.

question        the passage and its mark, papers that it names, filters
recommender     ranks the papers for it, and recommends some
recommendation  a recommended paper; whether any fits
relations       what a paper's PDF cites, and whose PDFs cite it
display         tables, JSON, citations to paste
temporary       libraries of a file or of Zotero that are asked without being built
"""
