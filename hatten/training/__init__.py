"""Training of encoders: batches, mining of negatives and positives, losses, validation, rounds."""
