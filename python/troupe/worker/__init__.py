"""The process that computes a stage for a node (docs/worker_protocol.md)."""
