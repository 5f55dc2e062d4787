"""What all packages need: errors, files, settings, commands and their help, progress, plots."""
