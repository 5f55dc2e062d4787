"""References: what an entry of a bibliography says of itself, and what other records say of the same work.

entry    the entry itself: impossible identifiers, dates and venues; which series a venue's name means
answers  compared with records of its work: confirmed, contradicted or unknown; the status of the work
table    a dump of works, turned once into an index
"""
