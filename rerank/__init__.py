"""Stage 2: a cross-encoder that reads a query and a candidate together, and the two-stage pipeline."""
