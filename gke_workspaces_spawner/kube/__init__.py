"""Kubernetes, and what Google adds to it, without JupyterHub: calls, watches, manifests, and the words for conditions and events.

A leaf of the house: nothing here knows a Hub, a record or a phase. What is known of GKE's Pod Snapshots lies in three files of data
(``facts.toml``, ``conditions.toml``, ``events.toml``), each fact with where it is from.
"""
