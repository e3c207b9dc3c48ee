"""Folds over the event log: runs, rebalances, failovers, snapshots. Pure."""
