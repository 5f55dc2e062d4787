"""Libraries: folders of your own papers that recommend which of them to cite.

library      the folder: open, create, change            sources         readers for files of papers
papers       one paper: clean, merge                     bibliographies  reader for BibTeX
exports      readers for RIS, NBIB, EndNote
identities   which records are the same paper            filters         which papers may be recommended
recommender  recommendations for a passage               duplicates      merging records of the same paper
models       the ranking model of a library              builtin         making the built-in model
explanation  why a paper is recommended                  formats         tables, JSON, BibTeX, citations
commands     build, add, remove, update, ask, info       settings        options of the commands
draft        suggestions for a draft                     draft_reader    missing citations, their contexts
draft_latex, draft_markdown                              draft_placeholders, draft_copies
server       HTTP API and web page                       mcp             tools for writing assistants
messages     requests and responses of both              limits          sizes, counts and times of the server
"""
