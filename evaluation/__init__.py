"""How good it is: runs and qrels, measures, benchmark protocols, reports."""
