"""Data sets: records, the files and citation graphs they are read from, and the store prepared from them.

records         papers, contexts and queries               source_files  their JSON files
prepare         writes records to a store, once            corpus        the memory-mapped store
tokenize        splits texts into words                    generate      a demo corpus, or one of any size
downloads       fetches published data                     releases      addresses, sizes and checksums
arguments       options key=value of commands              configuration those that Hydra composes
inspect/        reports on a corpus                        fulltext/     builds one from full texts
citations/      citation graphs, as corpora
"""
