"""The PostgreSQL sink connector."""
