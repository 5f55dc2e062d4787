"""Drafts: text in LaTeX, Markdown, Typst, Org or of a word processor that lacks citations.

reader      missing citations, their contexts, what else is cited     suggest  papers for every place
copies      the draft with citations filled in                        check    keys and entries that are wrong
"""
