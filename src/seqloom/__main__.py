"""`python -m seqloom` is the `seqloom` command."""

from seqloom.cli.main import main

main()
