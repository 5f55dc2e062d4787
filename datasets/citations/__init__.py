"""Papers that cite papers: their files, the citation graph in them, corpora whose queries are papers."""
