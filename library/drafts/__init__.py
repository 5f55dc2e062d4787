"""Drafts: text in LaTeX, Markdown, Typst or Org that lacks citations.

reader           missing citations, their contexts, what else is cited
placeholders     marks of missing citations              latex, markdown, typst, org    the syntaxes
suggest          papers for every place                  copies          the draft with citations filled in
check            keys and entries that are wrong         masked          drafts with all citations masked
contexts         a library's training contexts from the user's drafts
"""
