"""The runbooks, as Temporal workflows. Each `run` reads like the steps an operator would take."""
