"""References: what an entry of a bibliography says of itself, and what other records say of the same work.

entry    the entry itself: identifiers, dates and venues that cannot be
venues   which series a name means, and whether two names are of one venue
compare  an entry beside a record of its work
answers  the evidence put together: confirmed, contradicted or unknown; the status of the work
table    a dump of works, turned once into an index
"""
