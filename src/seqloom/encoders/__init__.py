"""One sequence to contextual states: three families, one interface."""
