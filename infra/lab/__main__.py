"""A lab as a process: `python -m infra.lab OPTIONS`, started by `infra.lab.runner.start_detached`."""

from infra.lab.runner import main

main()
