"""Commands that a lab node has on its PATH. Each file runs alone, on the standard library; the lab imports only the formats."""
