"""Data sets: records, the files and citation graphs they come from, and the prepared store they become.

records         what papers, contexts and queries are      source_files  the JSON files that hold them
prepare         records -> store, once                     corpus        the store, memory-mapped
tokenize        texts -> words                             demo          a generated corpus

The package has the name of Hugging Face's `datasets`, which cannot be imported beside it. Keep this file free
of heavy imports.
"""
