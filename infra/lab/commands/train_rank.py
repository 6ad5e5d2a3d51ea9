"""train-rank on a node: one rank of the training job in a pod, as the image of a real training program would have it."""

from infra.lab.kube.pod_rank import main

if __name__ == "__main__":
    main()
