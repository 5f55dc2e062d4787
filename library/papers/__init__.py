"""The papers of a library: the folder, the model that ranks them, and how they are kept."""
