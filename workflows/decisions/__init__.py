"""Pure decisions: facts in, the next step and its reason out. No Temporal, no input or output, no clock of their own."""
