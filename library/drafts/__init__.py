"""Drafts: text in LaTeX, Markdown, Typst or Org that lacks citations.

reader           missing citations, their contexts, what else is cited
placeholders     marks of missing citations, or of all   suggest         papers for every place
copies           the draft with citations filled in      check           keys and entries that are wrong
collection       drafts of a folder, masked
"""
