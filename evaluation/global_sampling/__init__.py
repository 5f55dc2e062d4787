"""Global citation recommendation on samples of a collection, and how a benchmark like MDCR is made."""
