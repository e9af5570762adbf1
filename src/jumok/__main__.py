"""Run the command line: ``python -m jumok``."""

from jumok.cli import main

main()
