"""Libraries on disk: millions of papers, in shards.

library        the library: asking, adding, removing
shard          the first stages on disk: words (tantivy), vectors (Faiss), records
entries        what a shard keeps of a paper, and what it is asked for a query
build          a library from its sources
parts          sources to deduplicated parts; reading: one piece of a source to one part
deduplicate    records of the same paper in all parts
counts         how often words, terms and names occur, by map and reduce
tasks          work on files, in this process or over Ray
"""
