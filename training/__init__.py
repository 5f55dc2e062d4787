"""What the training of all models shares: settings, the loop, history, resuming."""
