"""Whole clusters: verbs, faults, closing, export and audits. A package, so that its files share a cluster."""
