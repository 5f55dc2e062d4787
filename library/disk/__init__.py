"""Large libraries: millions of papers on disk, in shards.

tasks          work on files, in this process or over Ray
parts          sources to deduplicated parts; reading: one piece of a source to one part
deduplicate    records of the same paper in all parts
counts         how often words, terms and names occur, by map and reduce
shard          the first stages on disk: words (tantivy), vectors (Faiss), records
build          a library from its sources
candidates     what a shard keeps of a paper; the small library of what shards find for a query
library        the library: asking, adding, removing
"""
