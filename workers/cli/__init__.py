"""The command `hotspare`: one module for each group of commands."""
