"""A file's layers as stages: their parameters, data, state and checkpoints, with PyTorch."""
