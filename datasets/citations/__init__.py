"""Papers that cite papers: the files, their citation graph, and corpora whose queries are papers."""
