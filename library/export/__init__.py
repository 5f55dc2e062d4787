"""Papers written for people and other programs: tables, BibTeX, RIS, CSL JSON, citations."""
