"""Serving a library.

server  HTTP API and web page         mcp  tools for writing assistants
messages  requests and answers of both
"""
