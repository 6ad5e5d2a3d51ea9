"""Runs the command line from the tree: `python -m workers.launch`."""

from workers.launch import main

main()
