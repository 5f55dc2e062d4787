"""A library of one's own papers, which can be asked for citations."""
