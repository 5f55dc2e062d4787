"""Libraries in memory.

library     the library: open, create, change     generation  its files, opened as papers to rank
writer      writes a generation                   contexts    where its papers are cited: data sets, drafts
"""
