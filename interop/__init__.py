"""Our data sets and retrievers in tools of others: ir_datasets, MTEB, PyTerrier."""
