"""Libraries: folders of your own papers that recommend which of them to cite.

Packages, each of which imports only earlier ones:

sources    files of papers, Zotero                  evidence  full texts, passages, why a paper is recommended
papers     one Library: build, change, keep papers  ask       the question, papers to cite, how they are shown
drafts     missing citations in drafts, checks      enrich    abstracts, DOIs, years from services and files
references  whether references are real             editor    citations in editors (language server)
serve      HTTP API, web page, MCP                  commands  what is typed and printed
benchmark  other people's drafts                    builtin   our model
"""

MANIFEST = "library.json"
"""The file by which the folder of a library is known."""
MARK = "[CITE]"
"""A missing citation, in queries and in the output."""
