"""Results pages: plans, their jobs, and the pages written from them."""
