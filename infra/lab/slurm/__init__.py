"""A real Slurm for the lab: munge, slurmctld, a slurmd on each node, and a job that srun starts."""
