"""Retrievers, which rank the papers of a corpus for queries.

base        the interface: search, score, and what is never returned
queries     passages with a missing citation        filters      papers that may be returned
lexical/    BM25                                    encoders/    transformers (torch) that encode papers
networks/   small transformers without torch        indexes/     nearest neighbours
dense       search by vectors                       fusion       several retrievers as one
citations   collaborative filtering by citations    popularity   the most cited papers
passages    what a draft cites elsewhere            run          rankings as files
"""
