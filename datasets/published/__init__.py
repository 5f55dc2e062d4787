"""Published data: a registry with checksums, its downloads, and public drafts."""
