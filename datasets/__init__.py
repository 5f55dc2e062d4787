"""Data sets: records, the files and citation graphs they are read from, and the store prepared from them.

records         papers, contexts and queries               source_files  their JSON files
prepare         writes records to a store, once            corpus        the memory-mapped store
tokenize        splits texts into words                    demo          a generated corpus
"""
