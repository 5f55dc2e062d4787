"""The papers of a library.

library   one library: open, create, change, describe   storage   its files: papers, what ranks them
folder    library.json, lock, generations, damage
building  from its sources, and again                   watch     again whenever they change
merging   which records are one paper; merging them
models    the ranking model                             encoding  lets its networks read the papers
lance     a library too large for memory, in LanceDB
search    papers by words of title, author, year, key   fulltexts reads their PDFs, fills in abstracts
"""
