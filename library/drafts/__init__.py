"""Drafts: text in LaTeX or Markdown that lacks citations.

reader           missing citations, their contexts, what else is cited
latex, markdown  the two syntaxes                        placeholders    marks of missing citations
suggest          papers for every place                  copies          the draft with citations filled in
check            keys and entries that are wrong         masked          drafts with all citations masked
contexts         a library's training contexts from the user's drafts
"""
