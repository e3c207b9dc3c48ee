"""Group membership, rebalances, the assignor and the leader's duties. Pure."""
