"""The language server: citations in an editor, by meaning (`citerec lsp`).

documents     the text of a document, positions in it, citations and sentences at a caret
bibliography  the .bib files of a document, and which of their entries the library has
features      completion, code actions, hover, definition, diagnostics
workspace     what is open, and what is known of it
server        the protocol: documents, queue, cancellation, edits of .bib files
"""
