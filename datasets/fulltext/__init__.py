"""Full texts with citations, and the contexts cut from them: `python -m datasets.build`.

schema      what the readers give: papers, paragraphs with citation spans, references
sources     files by kind; their readers: json_lines (own, s2orc), tei, latex (with its bibliographies)
names       surnames and titles, made comparable
catalogue   the papers of all files, one record each
resolving   which paper a reference means
markers     what of a text is a citation marker: author_names before it, those that readers overlooked
masking     the text around a citation, markers masked
windows     the characters around a mask, and what they give away
selection   which citations become contexts
splitting   train, val and test by citing paper
building    the passes over the files; report: what was dropped and why
"""
