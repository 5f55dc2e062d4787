"""Libraries on disk: many millions of papers, in shards.

tasks        work on files, in this process or over Ray
parts        sources to deduplicated parts            reading      one piece of a source to one part
deduplicate  records of the same paper in all parts
"""
