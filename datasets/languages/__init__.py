"""Languages of documents and drafts."""
