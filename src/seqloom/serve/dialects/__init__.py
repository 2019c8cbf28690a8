"""The dialects of a server: one file of routes each, over the same service."""
