"""Judges of test tools: from what a tool printed to a verdict, a cause and what to do next."""
