"""Libraries: folders of your own papers that recommend which of them to cite.

library      the folder: open, create, change            sources/        readers for files of papers
papers       one paper: clean, merge                     identities      which records are the same paper
recommender  recommendations for a passage               duplicates      merging records of the same paper
models       the ranking model of a library              builtin         making the built-in model
explanation  why a paper is recommended                  filters         which papers may be recommended
search       papers by words of title, author, year      formats         tables, JSON, BibTeX, citations
commands     build, add, remove, info                    questions       ask, search
watch        update, once or at every change             temporary       libraries of files that are asked
nearby       what there is to ask                        references      papers as RIS and CSL JSON
limits       sizes, counts and times of the server       settings        options of the commands
drafts/      missing citations in drafts                 serving/        HTTP API, web page, MCP
enrichment/  abstracts, DOIs, years from services        language_server/  citations in editors
"""
