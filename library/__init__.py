"""A library of one's own papers, which can be asked for citations.

library     the folder: opened, made, changed           sources       files that papers come from
papers      a paper; which records are one paper        duplicates    records of one paper become one
recommender questions and their answers                 models        what ranks them
evidence    why a paper is recommended                  formats       tables, JSON, BibTeX, citations
draft       suggestions for a draft                     draft_reader  its places that lack a citation
draft_copy  a copy that cites them                      commands      build, add, remove, update, ask, info
server      over HTTP, with a page                      mcp           for writing assistants
settings    options of the commands of recommend.py     arguments     how they are given and explained
"""
