"""The rules of KIP-618 on a cluster. A package, so that its files share a cluster."""
