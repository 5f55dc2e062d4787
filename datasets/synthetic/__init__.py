"""Generated corpora of any size, for tests of scale: realistic lengths, word and citation frequencies."""
