"""The decisions of a consumer that fetches: positions, leaders, retries, buffer, logs without the position. Pure."""
