"""Embedding, encoder or decoder, and head, put together from a configuration."""
