"""What a notebook imports: clusters, connectors and workers, with the verbs on them."""
