"""Completing a library: `citerec enrich` fills in abstracts, DOIs, years and venues that its papers lack.

services   what the services are asked, and what they answer
client     requests: rates, retries, limits; the cache of answers
matching   when a work is the same paper; works in files on this machine
enrich     the command and its report
"""
