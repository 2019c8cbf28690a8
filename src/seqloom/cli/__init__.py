"""The command line: one file per group of verbs, each thin."""
