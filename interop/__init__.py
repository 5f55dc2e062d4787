"""Our data sets and retrievers in other tools: ir_datasets, MTEB, PyTerrier."""
