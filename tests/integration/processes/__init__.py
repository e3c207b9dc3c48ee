"""Workers in their own processes. A package, so that its tests share a cluster."""
