"""Models: an embedding, an encoder or decoder, and a head, built from a configuration."""
