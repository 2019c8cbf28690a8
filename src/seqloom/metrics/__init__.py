"""How good answers are: numbers that other people's papers report, each with its interval."""
