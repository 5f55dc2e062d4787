"""The limits of a server: sizes, counts and times.

Programs on this machine that use Python or the command line are trusted; only MAX_TEXT holds there too.
"""

from __future__ import annotations

THREADS = 4
"""Requests answered at a time; `citerec serve` has an option for it."""
LONGEST_WAIT = 10.0
"""Seconds that a request waits for a thread before it is refused (503)."""
MAX_BODY = 4_000_000
"""Bytes of a request's body (413)."""
TIMEOUT = 10.0
"""Seconds in which a request's head, and then its body, must arrive (408)."""

# Connections.
CONNECTIONS = 512
"""Open connections."""
BACKLOG = 256
"""Connections that wait to be accepted."""
SHUTDOWN = 5
"""Seconds that running requests have left when the server ends."""

# Questions and answers (422).
MAX_TEXT = 100_000
"""Characters of a passage."""
MAX_TITLE, MAX_ABSTRACT = 2_000, 20_000
"""Characters."""
MAX_NAME = 500
"""Characters of an id, key, author, collection or venue."""
MAX_PAPERS = 100
"""Papers in an answer."""
MAX_EXCLUDED, MAX_ONLY = 1_000, 10_000
"""Papers that a filter names."""
MAX_COLLECTIONS_SHOWN = 1_000
"""Collections that the description of a library lists."""
