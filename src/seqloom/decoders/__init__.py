"""Decoders predict each token of a sequence from those before it: three families, one interface."""
