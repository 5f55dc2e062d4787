"""The language server: citations in an editor, by meaning (`citerec lsp`).

documents     the text of a document, positions in it, citations and sentences at a caret
workspace     what is open, what is known of it, .bib files, which of their entries the library has
features      completion, code actions, hover, definition, diagnostics
server        the protocol: documents, queue, cancellation, edits of .bib files
"""
