"""States that predict a sequence from its own beginning: three families, one interface."""
