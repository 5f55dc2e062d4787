"""Libraries: folders of your own papers that recommend which of them to cite.

library      the folder: open, create, change            sources         readers for files of papers
papers       one paper: clean, identify, merge           bibliographies  readers for BibTeX and RIS
recommender  recommendations for a passage               duplicates      merging records of the same paper
models       the ranking model of a library              box             making the built-in model
explanation  why a paper is recommended                  formats         tables, JSON, BibTeX, citations
draft        suggestions for a draft, and a filled copy  draft_reader    missing citations of a draft
commands     build, add, remove, update, ask, info       settings        options of recommend.py's commands
server       HTTP API and web page                       mcp             tools for writing assistants
messages     requests and responses of both
"""
