"""Models of Hugging Face folders as layers of this package: what a training of a folder computes."""
