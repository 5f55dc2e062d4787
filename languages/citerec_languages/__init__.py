"""The encoder of passages that are not in English, in the folder `networks`, which citerec reads."""
