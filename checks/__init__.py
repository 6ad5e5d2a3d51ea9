"""What is wrong with a node: reads the machine, judges what it reads, and says what the vendor would do.

Python 3.9 and the standard library only, because this folder travels to bare nodes.
"""
