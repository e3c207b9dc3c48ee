"""What a consumer fetches from whom, pure: positions, leaders, retries, and when a log no longer fits a position."""
