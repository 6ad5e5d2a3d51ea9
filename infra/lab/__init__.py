"""A GPU cluster on one machine: an EC2 endpoint, nodes behind SSH, a training job, a Temporal server, faults on demand."""
