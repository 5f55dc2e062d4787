"""A library of one's own papers, which can be asked for citations.

library     the folder: opened, made, changed           sources      files that papers come from
duplicates  records of one paper become one             commands     build, add, remove, update, info
settings    options of the commands of recommend.py     arguments    how they are given and explained
"""
