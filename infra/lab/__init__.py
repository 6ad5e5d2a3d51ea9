"""A whole GPU cluster on one machine: an EC2 endpoint, nodes behind real SSH, a training job, a Temporal server, faults on demand."""
