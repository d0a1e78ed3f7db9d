"""A GKE that fits on one machine: a real control plane, with Google's part of it (nodes, Pod Snapshots, autoscaler) emulated."""
