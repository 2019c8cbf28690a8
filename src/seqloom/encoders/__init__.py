"""Encoders turn a sequence into contextual states: three families, one interface."""
