"""A library of one's own papers, which can be asked for citations.

library     the folder: opened, made, changed           sources       files that papers come from
papers      a paper, made of what a source says         duplicates    records of one paper become one
recommender questions and their answers                 models        what ranks them
explanation why a paper is recommended                  formats       tables, JSON, BibTeX, citations
draft       suggestions for a draft, and its copy       draft_reader  its places that lack a citation
commands    build, add, remove, update, ask, info       settings      options of recommend.py's commands
server      over HTTP, with a page                      mcp           for writing assistants
messages    what is sent to both, and their answers     arguments     how options are given and explained
"""
