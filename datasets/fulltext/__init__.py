"""Full texts with citations, and the contexts cut from them (`python -m datasets.build`).

documents      what is read of a paper: metadata, paragraphs with citation spans, references
readers        files by format; JSON lines of our own layout and S2ORC's
tei, latex     documents; latex_source turns LaTeX into plain text
catalogue      the papers of all files, and which of them a reference means
markers        which parts of a text are citation markers
contexts       the text around a citation, other markers masked; which citations become contexts
"""
