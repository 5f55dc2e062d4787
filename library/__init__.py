"""Libraries: folders of your own papers that recommend which of them to cite.

library      what a library answers and changes  memory/         the files that it is kept in
recommender  opens one, ranks for a passage      question        the passage, and which papers may answer
candidates   papers in memory that are ranked    models          the ranking model of a library
folder       library.json, lock, generations     settings        options of the commands
explanation  why a paper is recommended          search          papers by words of title, author, year
papers       one paper: clean, merge             identities      which records are the same paper
duplicates   merging records of the same paper   sources/        readers for files of papers, Zotero
commands/    build, add, remove, update, ask     export/         tables, JSON, BibTeX, RIS, CSL JSON
drafts/      missing citations in drafts         serving/        HTTP API, web page, MCP
enrichment/  abstracts, DOIs, years              language_server/  citations in editors
builtin/     the model that comes with the package
"""
