"""A run as a folder: its configuration, checkpoints, manifest, lock and log."""
