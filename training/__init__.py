"""Training shared by all models: settings, the training loop, history, resuming."""
